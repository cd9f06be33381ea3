package engine

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// tiny makes every bound as small as it can be, so that a few facts roll segments, flush keys and write checkpoints,
// and so that a copy of all files is small. Slices have tests, and crashes, of their own.
func tiny(fs vfs.FS, now func() time.Time) Options {
	return Options{
		Dir: "data", FS: fs, Now: now, Kinds: storetest.Kinds(), SegmentBytes: 32 << 10, IndexEntries: 8,
		CheckpointBytes: 2 << 10, NoSlices: true, CounterBytes: 256, dirty: 10_000, open: 8,
		recall: 4 << 10,
	}
}

// Given workloads, alone and side by side, with restarts, when the power fails before any operation that changes a file
// and takes any of what was not synced, then the next start has everything that anybody was answered, whole batches,
// and nothing else; and everything sent again is recognized or recorded, once.
func TestPowerFailsAtEveryOperation(t *testing.T) {
	l := newLab(t)
	for seed := uint64(1); l.points() < crashFloor && !t.Failed(); seed++ {
		l.run(seed)
	}
	l.end()
	t.Logf("%d crash points, %d different images", l.checked, len(l.images))
	if l.checked < crashFloor {
		t.Errorf("checked %d crash points, want %d at least", l.checked, crashFloor)
	}
}

// lab crashes stores. Different crash points may leave the same files: these are recovered once and held against what
// had been answered at each of the points.
type lab struct {
	t     *testing.T
	clock *storetest.Clock
	jobs  chan crashPoint
	work  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	rng     *rand.Rand
	taken   int
	checked int
	images  map[xxh3.Uint128]*image
}

// crashPoint is what a power failure left and what had been answered by then.
type crashPoint struct {
	fs       *vfs.MemFS
	log      *diary
	answered int // entries of the diary
	name     string
}

// image is what a start made of some files. It is made once, by who comes first.
type image struct {
	once    sync.Once
	err     error
	tenants map[string]*recovered
}

// recovered is a tenant's ledger after a crash.
type recovered struct {
	rows  map[string]uint64    // seq by id
	kinds []ledger.RowKind     // by seq-1
	trees map[uint64]tree.Tree // by size, after every section
	count int64                // facts in the counter that readers look at
	head  uint64
}

const crashWorkers = 2

func newLab(t *testing.T) *lab {
	l := &lab{t: t, clock: storetest.NewClock(), jobs: make(chan crashPoint, 64), rng: rand.New(rand.NewPCG(7, 11)),
		images: map[xxh3.Uint128]*image{}}
	for range crashWorkers {
		l.work.Go(func() {
			for p := range l.jobs {
				if err := l.check(p); err != nil {
					t.Errorf("crash %s: %v", p.name, err)
				}
			}
		})
	}
	return l
}

func (l *lab) points() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

func (l *lab) end() {
	close(l.jobs)
	l.work.Wait()
}

// survives are the chances, in percent, that a block or name that was not synced is there after the failure.
var survives = []int{0, 20, 50, 80, 100}

// watch wraps files so that the power fails before every operation that changes them.
func (l *lab) watch(mem *vfs.MemFS, log *diary, name string) vfs.FS {
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock ||
			op.Kind == errorfs.OpFilePreallocate {
			return nil
		}
		log.peek()
		for _, percent := range survives {
			// What was answered is looked at first: the copy may know more, never less.
			answered := log.answered()
			l.mu.Lock()
			rng := rand.New(rand.NewPCG(l.rng.Uint64(), 0))
			l.taken++
			n := l.taken
			l.mu.Unlock()
			clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			l.jobs <- crashPoint{clone, log, answered,
				fmt.Sprintf("%d (%s, before %d %s, %d%% survive)", n, name, op.Kind, op.Path, percent)}
		}
		return nil
	}))
}

func (l *lab) check(p crashPoint) error {
	sum, err := fingerprint(p.fs)
	if err != nil {
		return err
	}
	l.mu.Lock()
	img := l.images[sum]
	if img == nil {
		img = &image{}
		l.images[sum] = img
	}
	l.checked++
	l.mu.Unlock()
	img.once.Do(func() { img.tenants, img.err = l.recover(p) })
	if img.err != nil {
		return img.err
	}
	return p.log.holds(img.tenants, p.answered)
}

// fingerprint identifies what is in the files.
func fingerprint(fs vfs.FS) (xxh3.Uint128, error) {
	h := xxh3.New()
	for _, dir := range []string{"", journalDir, indexDir, stateDir, slicesDir} {
		dir = fs.PathJoin("data", dir)
		names, err := fs.List(dir)
		if err != nil {
			continue // not there
		}
		slices.Sort(names)
		for _, name := range names {
			info, err := fs.Stat(fs.PathJoin(dir, name))
			if err != nil {
				return xxh3.Uint128{}, err
			}
			fmt.Fprintf(h, "%s/%s %d\n", dir, name, info.Size())
			if info.IsDir() {
				continue
			}
			f, err := fs.Open(fs.PathJoin(dir, name))
			if err != nil {
				return xxh3.Uint128{}, err
			}
			if _, err := io.Copy(h, f); err != nil {
				return xxh3.Uint128{}, err
			}
			if err := f.Close(); err != nil {
				return xxh3.Uint128{}, err
			}
		}
	}
	return h.Sum128(), nil
}

// recover opens what a crash left, has it checked, sends everything again, and has it checked once more.
func (l *lab) recover(p crashPoint) (out map[string]*recovered, err error) {
	e, err := Open(tiny(p.fs, l.clock.Now))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() {
		if closed := e.Close(); err == nil {
			err = closed
		}
	}()
	out = map[string]*recovered{}
	for _, id := range crashTenants {
		if out[id], err = readBack(e, id); err != nil {
			return nil, err
		}
	}
	if err := p.log.sendAgain(e, out); err != nil {
		return nil, fmt.Errorf("sent again: %w", err)
	}
	return out, nil
}

// readBack checks a tenant's ledger and reads what the diary is held against. A tenant that is not there has nothing.
func readBack(e *Engine, id string) (*recovered, error) {
	r := &recovered{rows: map[string]uint64{}, trees: map[uint64]tree.Tree{}}
	if _, err := e.book(id); problem.Is(err, problem.NotFound) {
		return r, nil
	}
	if err := objections(func(tb storetest.TB) { storetest.CheckLedger(tb, e, id) }); err != nil {
		return r, err
	}
	err := e.View(context.Background(), id, func(v store.View) error {
		r.head = v.Head().Seq
		var hasher ledger.Hasher
		var grown tree.Tree
		keys := v.(*view).resident.TreeKeys
		err := v.Sections(1, func(s *ledger.Section) error {
			for i := range s.Rows {
				r.kinds = append(r.kinds, s.Rows[i].Kind())
				if s.Rows[i].Kind() == ledger.EventRow {
					r.rows[s.Rows[i].Event.Key.ID()] = s.Rows[i].Seq
				}
			}
			grown, _ = hasher.Grow(grown, keys, s.Rows, nil)
			r.trees[grown.Size()] = grown
			return nil
		})
		if err != nil {
			return err
		}
		c, err := v.Counter(watchedCounter)
		if err == nil {
			r.count = c.All().Count
		}
		return err
	})
	return r, err
}

// watchedCounter is a counter that nothing corrects, so that it only grows.
var watchedCounter = usage.CounterID{Meter: 1, Customer: "c", Month: storetest.Month}

// objections runs checks and returns what they found.
func objections(check func(storetest.TB)) (err error) {
	o := &objector{}
	defer func() {
		if r := recover(); r != nil && r != any(o) {
			panic(r)
		}
		err = o.err()
	}()
	check(o)
	return nil
}

// objector is a TB that remembers.
type objector struct {
	mu   sync.Mutex // guards said
	said []string
}

func (o *objector) Helper() {}

func (o *objector) Errorf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, fmt.Sprintf(format, args...))
}

func (o *objector) Fatalf(format string, args ...any) {
	o.Errorf(format, args...)
	panic(o)
}

func (o *objector) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.said) == 0 {
		return nil
	}
	return fmt.Errorf("%q", o.said)
}
