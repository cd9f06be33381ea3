// Package keyindex answers one question exactly: has this key been seen, and where
// is its row? It owns the directory of the index: memory tables, sorted runs, their
// merges and the manifest.
//
// It never decides what a duplicate means, never reads the journal, and is never an
// authority: everything in it can be made again from the journal.
package keyindex

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// # How the key index works
//
// A key is a keyed 128-bit hash. New keys go to the active memory table. When it is
// full the owner freezes it, a flush writes it as a sorted run, and merges fold sixteen
// runs into one. A lookup asks the active table, the frozen tables and the runs. Nearly
// all keys are new, so the index is built for the answer no: one word of the sketch of
// the key's partition, whatever the number of keys and runs. Only what the sketch
// admits asks the filters of the runs, and only what a filter admits reads a block.
//
//	Insert ─▶ active ─Freeze─▶ frozen… ─Durable─▶ flush ─▶ run of tier 0 ─┐ sixteen of a
//	                                         │    tier t+2 in sixteenths ◀┘ tier and range
//	                                         └──▶ bits in the sketches
//
//	Probe: load the words of all keys ─▶ keep what they admit (duplicates, one new
//	key in forty) ─▶ run filters, layer by layer ─▶ blocks
//
// Invariants:
//
//  1. A key is in at most one place. Insert requires absence, a flush moves a table
//     and a merge moves runs in one publication. So runs need no order among
//     themselves, nothing shadows anything, and a key met twice in a merge is damage.
//  2. Nothing reaches disk before the journal is durable past it. Otherwise a crash
//     could lose the row and keep the key, and the fact, sent again, would be called
//     a duplicate and never be billed. Durable releases tables, in order.
//  3. The manifest's mark says that the runs hold every key before it and none after.
//     Replay from the mark therefore inserts only absent keys.
//  4. A file is complete and durable, with its directory entry, before a manifest
//     names it; it is removed only after a durable manifest stopped naming it and
//     the last view that holds it is gone. When replacing the manifest failed half
//     way, the files of both stay until a later replacement succeeded.
//  5. A probe is exact for the view it pinned. What was flushed later is found by
//     Lookup, because every run carries the number of the newest table in it: runs
//     newer than the epoch are asked again, all others cannot hold anything new.
//     The frozen list and the number of the newest flushed table are published
//     together, after the view that holds the table, so no moment shows it in neither.
//  6. A failed write changes nothing: the table stays frozen and readable, the merge's
//     inputs stay, and the work is tried again from the start in a new file. No sync
//     is ever repeated on the file whose sync failed.
//  7. A view's sketches admit every key of the view's runs: a missing bit would be a
//     duplicate called new, and billed. See below.
//
// # Sketches
//
// A sketch is derived and lives in memory alone. It belongs to a view, like the runs
// that it speaks for, and its bits are only ever set, so that what held when a view was
// published holds as long as anyone has it pinned, however old it is by then. There
// are three ways to a new view:
//
//   - A flush adds its keys to the sketches of the current view and then publishes a
//     view with the run and those sketches. It holds sketchMu from its first bit to
//     its publication, so none of them is replaced in between. If it fails, the bits
//     it has set are false alarms.
//   - A merge publishes other runs with the same keys, and the sketches stay.
//   - resketch makes one again from the runs of a view that it pinned, because a
//     partition has outgrown its sketch or, after Open, has none. What was flushed
//     meanwhile is in runs newer than that view: it takes sketchMu, reads those
//     too, and publishes. When a read fails nothing is published.
//
// Until there is a sketch, a word that admits everything stands in its place, and keys
// ask all runs: an index answers as soon as it is open. Sketches are made one at a
// time, before merges, on the goroutine of the merges: 14 ns a key, so a second
// or two for 100 million, in which the runs are read once; from a disk that gives
// 200 MB/s it takes that disk 14 seconds. A sketch is made twice as large when its
// partition has outgrown it, which comes to reading each new key once.
//
// # Runs and merges
//
// Runs of tier t hold 4^t tables over 1/4^t of the key space, down to one partition of
// 64; a merge leads two tiers up. It rewrites 16 million keys at most (at 40 ns each)
// until the index passes 4 billion, and 64 million beyond. A key is rewritten once up to
// 256 million keys and twice up to 4 billion. One merge that rewrites everything
// was measured to cost a third of the throughput while it ran.
//
// Files, and descriptors, number at most 15 of tier 0, 240 of tier 2 and 960 of tier 4:
// 255 at 256 million keys, 447 at a billion, 1215 at 4 billion, and fewer than 64 for
// the tables and merges in flight. An index that was begun with merges of four keeps up
// to three runs of each odd tier and range for good: only what the sketch admits asks
// them.
//
// Memory at 100 million keys: sketches 125 MB (7 to 14 bits a key), filters 125 MB,
// fences 5 MB.
//
// Locks. The owner's RWMutex makes Insert and Freeze exclusive with Lookup; nothing
// here locks for them. mu guards the lists and is held for moments, never during
// I/O. commitMu serializes replacements of the manifest and is taken before mu, and
// sketchMu before commitMu.
//
// Rejected:
//   - One hash table on disk: every insert is a random write, and a crash tears it.
//   - A general LSM tree: measured at a fifth of the rate; it pays for order between
//     versions, deletes and ranges, none of which exist here.
//   - Asking the filter of every run for every key, with merges of four to keep the
//     runs few: at 100 million keys a new key asked eight filters, each a miss of the
//     cache and of the address translation (490 ns of 2.8 µs), and was merged three
//     times (380 ns); the engine kept 55 % of its rate at a million. Sorting the
//     questions so that their misses overlap brought eight filters to 200 ns; larger
//     pages brought nothing.
//   - Keeping sketches on disk: one more thing that can be damaged, to save a start
//     that does not wait for it.
//   - Several small sketches instead of a larger one made again: each is one more miss.
//   - 256 partitions: four times the files, and merges as large until 4 billion keys.
//   - A tree of the sixteen heads of a merge: each of its four comparisons is a branch
//     that nobody can predict. Buckets need none.
//   - Sorting frozen tables: the slots are in hash order already (see memTable).
//   - Keeping flushed tables in memory until no probe can miss them: 40 MB each, for
//     what one number per run achieves.
//   - Interpolation instead of a fence: the error at a million keys is several
//     blocks, and the fence costs 5 MB at 100 million keys.

const (
	// DefaultMemEntries: a table of a million keys is 45 MB of memory and one flush a
	// second at full load. Half of it costs one more merge per key, the double
	// another 90 MB.
	DefaultMemEntries = 1 << 20
	// maxMemEntries leaves a memory table six bits to distinguish entries.
	maxMemEntries = 1 << 25
	// maxSeq: a sequence number has six bytes on disk.
	maxSeq = 1<<48 - 1
)

// Hash is the keyed hash of a key.
type Hash struct{ Hi, Lo uint64 }

// Entry is what the index holds for a key. Seq is below 2^48.
type Entry struct {
	Hash  Hash
	Check uint32
	Seq   uint64
}

// Found is the answer for a key; the rest is zero unless OK.
type Found struct {
	Seq   uint64
	Check uint32
	OK    bool
}

// Mark is a position in the journal. It is only stored and compared here.
type Mark struct{ Segment, Offset uint32 }

func (m Mark) less(o Mark) bool {
	return m.Segment < o.Segment || m.Segment == o.Segment && m.Offset < o.Offset
}

// Epoch says which runs a probe has seen.
type Epoch uint64

// Options configure Open.
type Options struct {
	FS  vfs.FS
	Dir string
	// MemEntries is how many keys the memory table takes before Full. Default 1<<20.
	MemEntries int
	// StoreID is written into every file; an index of another store is refused.
	StoreID [16]byte
	// Fatal is called at most once, on a goroutine of the index, when a merge or the
	// making of a sketch meets damage. Nothing is lost by then, but both stop. Failed
	// writes are no reason: they are tried again and show in Backlog and Stats. Default:
	// only Stats shows it.
	Fatal func(error)
	// Rand yields the seed at creation. Default: crypto/rand.
	Rand io.Reader
}

// Index is an open key index.
type Index struct {
	opts       Options
	seed       uint64
	partitions uint32
	pshift     uint // Hi >> pshift is the partition

	active *memTable // guarded by the owner's lock
	memory atomic.Pointer[memory]

	// sketchMu keeps a sketch from being replaced while a flush adds to it and publishes.
	sketchMu sync.Mutex
	commitMu sync.Mutex // guards what follows and serializes manifest writes
	man      manifest
	doubtful []string // files of manifests that may or may not be the one on disk

	mu        sync.Mutex // guards what follows
	changed   *sync.Cond // on mu: something a waiter may wait for has happened
	view      *view
	liveViews int
	tallies   []tally     // by partition
	frozen    []*memTable // oldest first; replaced, never modified
	tables    uint64      // number of the newest frozen table
	lastMark  Mark        // of the newest frozen table
	durable   Mark
	spare     *memTable
	dead      []*run   // no view holds them
	doomed    []string // files to remove
	closed    bool
	flushing  attempts
	merging   attempts
	halted    bool // a merge or sketch met damage
	stats     Stats

	nextFile   atomic.Uint64
	stop       chan struct{}
	workers    sync.WaitGroup
	flushPoke  chan struct{}
	mergePoke  chan struct{}
	flushRetry chan struct{}
	mergeRetry chan struct{}
}

// memory is what Lookup reads without a lock.
type memory struct {
	flushed uint64
	frozen  []*memTable
}

// firstTable is the number that everything on disk at Open counts as; 0 is thus
// an epoch before all runs.
const firstTable = 1

// Open opens the index in o.Dir or creates one. It returns *Damage when files are
// missing or fail their checks, *VersionError for a format it does not know and
// *ForeignError for an index of another store.
func Open(o Options) (*Index, error) {
	if o.MemEntries == 0 {
		o.MemEntries = DefaultMemEntries
	}
	if o.MemEntries < 1 || o.MemEntries > maxMemEntries {
		return nil, fmt.Errorf("open key index: MemEntries is %d, must be between 1 and %d", o.MemEntries,
			maxMemEntries)
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	man, runs, err := load(o)
	if err != nil {
		return nil, err
	}
	x := &Index{
		opts:       o,
		seed:       man.Seed,
		partitions: man.Partitions,
		pshift:     64 - rangeShift(man.Partitions, 1),
		active:     newMemTable(o.MemEntries),
		man:        man,
		tallies:    make([]tally, man.Partitions),
		tables:     firstTable,
		lastMark:   man.Mark,
		stop:       make(chan struct{}),
		flushPoke:  make(chan struct{}, 1),
		mergePoke:  make(chan struct{}, 1),
		flushRetry: make(chan struct{}, 1),
		mergeRetry: make(chan struct{}, 1),
	}
	x.changed = sync.NewCond(&x.mu)
	x.nextFile.Store(man.Next)
	x.memory.Store(&memory{flushed: firstTable})
	x.mu.Lock()
	x.setView(newView(runs, slices.Repeat([]sketch{unsketched}, int(x.partitions)), x.pshift, firstTable))
	x.mu.Unlock()
	for p := range x.tallies {
		from, last := x.rangeOf(uint32(p), 1)
		x.tallies[p].keys = keysBetween(x.view.covering(uint32(p)), from, last)
	}
	x.workers.Go(x.flushLoop)
	x.workers.Go(x.mergeLoop)
	return x, nil
}

// Mark is the journal position that the runs on disk reflect: replay starts there.
func (x *Index) Mark() Mark {
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	return x.man.Mark
}

// Seed is chosen at creation and never changes: the owner hashes keys with it.
func (x *Index) Seed() uint64 { return x.seed }

// Probe looks keys up in the runs, into out, which is at least as long. It is safe
// from any number of goroutines and holds no lock meanwhile. Lookup completes it.
func (x *Index) Probe(keys []Hash, out []Found) (Epoch, error) {
	v, err := x.pin()
	if err != nil {
		return 0, err
	}
	defer x.unpin(v)
	return Epoch(v.flushed), v.probe(keys, out)
}

// Lookup completes a probe with what the memory tables hold and what was flushed
// since. The owner's lock keeps Insert and Freeze away meanwhile.
func (x *Index) Lookup(h Hash, probed Found, at Epoch) (Found, error) {
	if probed.OK {
		return probed, nil
	}
	if f, ok := x.active.find(h); ok {
		return f, nil
	}
	mem := x.memory.Load()
	for _, t := range mem.frozen {
		if f, ok := t.find(h); ok {
			return f, nil
		}
	}
	if uint64(at) == mem.flushed {
		return Found{}, nil
	}
	v, err := x.pin()
	if err != nil {
		return Found{}, err
	}
	defer x.unpin(v)
	return v.getSince(h, uint64(at))
}

// Warm loads the place where Lookup will begin. A caller that is about to look up many keys warms all of them first:
// those loads do not wait for one another. What it returns has no meaning, but must be used, or the compiler drops the
// load.
func (x *Index) Warm(h Hash) uint64 {
	return uint64(x.active.slots[h.Hi>>(64-x.active.homeBits)])
}

// Get is Probe and Lookup for one key, under the owner's lock like Lookup.
func (x *Index) Get(h Hash) (Found, error) {
	return x.Lookup(h, Found{}, 0)
}

// Insert adds an entry whose key must be absent. Exclusive by the owner's lock.
func (x *Index) Insert(e Entry) {
	if e.Seq > maxSeq {
		panic(fmt.Sprintf("keyindex: sequence number %d does not fit 48 bits", e.Seq))
	}
	x.active.insert(e)
}

// Entries is how many keys there are. Under the owner's lock like Lookup.
func (x *Index) Entries() int64 { return x.Stats().Entries + int64(len(x.active.entries)) }

// Full reports that the active table has reached MemEntries: the owner freezes it
// at the next group boundary. Under the owner's lock like Lookup.
func (x *Index) Full() bool { return len(x.active.entries) >= x.opts.MemEntries }

// Freeze ends the active table: journal position m covers every entry inserted so
// far. It waits in memory until Durable reaches m. Exclusive by the owner's lock.
func (x *Index) Freeze(m Mark) {
	x.mu.Lock()
	if m.less(x.lastMark) {
		x.mu.Unlock()
		panic(fmt.Sprintf("keyindex: Freeze at %v after %v", m, x.lastMark))
	}
	t, next := x.active, x.spare
	x.tables++
	t.mark, t.number = m, x.tables
	x.lastMark = m
	x.spare = nil
	x.frozen = append(x.frozen[:len(x.frozen):len(x.frozen)], t)
	x.memory.Store(&memory{flushed: x.memory.Load().flushed, frozen: x.frozen})
	ready := !x.durable.less(m)
	x.mu.Unlock()
	// The spare was flushed earlier; a Lookup that may still have read it ended
	// before the owner could call Freeze, which is why it is cleared here.
	if next != nil {
		next.reset()
	} else {
		next = newMemTable(x.opts.MemEntries)
	}
	x.active = next
	if ready {
		poke(x.flushPoke)
	}
}

// Durable says that the journal is durable up to m: tables frozen at m or before
// may now be written. Marks may repeat and arrive late.
func (x *Index) Durable(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.durable.less(m) {
		return
	}
	x.durable = m
	if len(x.frozen) > 0 && !m.less(x.frozen[0].mark) {
		poke(x.flushPoke)
	}
}

// Backlog is how many frozen tables wait to be on disk.
func (x *Index) Backlog() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.frozen)
}

// Waiting is how many keys the frozen tables hold: memory that grows while the disk does not keep up.
func (x *Index) Waiting() (keys int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.frozen {
		keys += len(t.entries)
	}
	return keys
}

// Close stops the background work and waits for it and for probes under way. Tables
// not yet flushed are dropped: the journal holds them after Mark.
func (x *Index) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return ErrClosed
	}
	x.closed = true
	x.mu.Unlock()
	close(x.stop)
	x.workers.Wait()
	x.mu.Lock()
	x.unpinLocked(x.view)
	for x.liveViews > 0 {
		x.changed.Wait()
	}
	x.changed.Broadcast()
	x.mu.Unlock()
	return x.reap()
}

func (x *Index) stopping() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

// poke wakes a worker; one that is awake already will look again anyway.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func randomSeed(r io.Reader) (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, fmt.Errorf("choose key index seed: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

func isDamage(err error) bool {
	var d *Damage
	return errors.As(err, &d)
}
