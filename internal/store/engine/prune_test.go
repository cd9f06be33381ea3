package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// pruned is a ledger of two old months and a new one, over several segments. Some tiles hold rows of one month alone,
// some of both, some have rows that stay, and many lie in two segments.
type pruned struct {
	t     testing.TB
	clock *storetest.Clock
	head  ledger.Head
}

// midTile is a number of rows that ends inside of a tile that leaves whole with the older month.
const midTile = 3*tree.TileRows + 100

var older, newer = storetest.Month - 2, storetest.Month - 1

func newPruned(t *testing.T, fs vfs.FS, sent func(e *Engine, rows uint64)) (*pruned, *Engine) {
	p := &pruned{t: t, clock: storetest.NewClock()}
	o := tiny(fs, p.clock.Now)
	if sent != nil {
		o.CheckpointBytes, o.IndexEntries, o.CounterBytes = 1<<30, 10_000, 128_000 // only the test makes checkpoints
	}
	e := mustOpen(t, o)
	if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	n := 0
	send := func(count int, late bool, months ...calendar.Month) {
		var events []usage.Event
		for i := range count {
			m := months[i%len(months)]
			at := m.Start().Add(200 * time.Hour)
			if late && i == count/2 {
				at = m.Start().Add(time.Hour) // adjusted, which never leaves
			}
			n++
			events = append(events, storetest.Fact(fmt.Sprintf("%d-%030d", n, n), "calls", m.String(), at, "1"))
		}
		for some := range slices.Chunk(events, 80) { // so many fit a segment
			if _, err := e.Record(context.Background(),
				store.Batch{Tenant: "acme", By: "acme.k1", Events: some}); err != nil {
				t.Fatal(err)
			}
			if sent != nil {
				sent(e, uint64(n))
			}
		}
	}
	for _, count := range []int{300, 1, 2, 400, 77, 500} {
		send(count, false, older)
	}
	send(300, true, older)
	for range 6 {
		send(90, false, older, newer)
	}
	send(700, false, newer)
	send(300, true, newer)
	send(300, false, newer, storetest.Month)
	p.change(e, "horizon", ledger.FloorKind.State(&ledger.Floor{At: storetest.Month.Start()}))
	return p, e
}

func (p *pruned) change(e *Engine, what string, s entity.State) {
	p.t.Helper()
	err := e.Update(context.Background(), "acme", func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{Event: audit.Event{Type: what + ".made", EntityType: what, EntityID: "x"},
			State: s})
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// archive records that a month was archived, with the base that replaces it.
func (p *pruned) archive(e *Engine, m calendar.Month) {
	p.t.Helper()
	a, base := ledger.Archive{Month: m, Manifest: "there.json"}, ledger.Base{Month: m}
	err := e.View(context.Background(), "acme", func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{From: m.Start(), To: m.End(), Events: true}, func(r *ledger.Row) bool {
			switch {
			case r.Kind() != ledger.EventRow || r.Event.Month() != m:
				return true
			case r.Event.Status() == usage.Adjusted:
				a.Stay++
			default:
				a.Last = r.Seq
				if a.First == 0 {
					a.First = r.Seq
				}
			}
			a.Rows++
			a.End = r.Seq
			return true
		})
		if err != nil {
			return err
		}
		return v.Counters(store.CounterPlace{Month: m}, func(at store.CounterPlace, c *usage.Counter) bool {
			if at.Month == m {
				base.Counters = append(base.Counters,
					ledger.BaseCounter{Meter: 1, Customer: strings.Clone(at.Customer), Counter: *c})
			}
			return at.Month == m
		})
	})
	if err != nil || a.Stay == 0 {
		p.t.Fatalf("%d rows would stay: %v", a.Stay, err)
	}
	p.change(e, "base", ledger.BaseKind.State(&base))
	p.change(e, "archive", ledger.ArchiveKind.State(&a))
}

func (p *pruned) prune(e *Engine) uint64 {
	p.t.Helper()
	n, err := e.Prune(context.Background(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// check wants rows and what was kept of the others to make up the tree, and the tiles to be right, and returns of which
// rows a leaf was kept.
func (p *pruned) check(e *Engine, what string) (leaves []uint64) {
	p.t.Helper()
	err := e.View(context.Background(), "acme", func(v store.View) error {
		head := v.Head()
		if p.head.Seq > 0 && head.Tree != p.head.Tree {
			p.t.Errorf("%s: the root of %d rows is %x, was %x", what, head.Seq, head.Tree.Root(), p.head.Tree.Root())
		}
		p.head = head
		var hashes ledger.Hasher
		keys := v.(*view).resident.TreeKeys
		c := tree.NewCheck(v.Tree(), func(want tree.Tile, got tree.Hash) {
			p.t.Errorf("%s: tile %d of level %d is %x, want %x", what, want.Index, want.Level, got, want.Hash)
		})
		if err := v.PrunedSections(1, func(s *ledger.Section) error { return hashes.Check(c, keys, s) }); err != nil {
			return err
		}
		if got, err := c.Tree(); err != nil || got != head.Tree {
			p.t.Errorf("%s: the rows give the root %x, the head's is %x: %v", what, got.Root(), head.Tree.Root(), err)
		}
		if got, err := tree.Rebuild(v.Tree(), head.Seq); err != nil || got != head.Tree {
			p.t.Errorf("%s: the tiles give the root %x, the head's is %x: %v", what, got.Root(), head.Tree.Root(), err)
		}
		return v.(*view).places(1, func(at state.Section) (bool, error) {
			var d decoder
			s, err := e.readPlace(v.(*view).b, at, &d, v.(*view).resident)
			if err != nil {
				return false, err
			}
			own := make([]tree.Hash, len(s.rows))
			return true, s.eachLeaf(own, func(seq uint64, leaf *tree.Hash) error {
				if leaf != nil && s.row(seq) == nil {
					leaves = append(leaves, seq)
				}
				return nil
			})
		})
	})
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return leaves
}

// named are the rows whose leaves must be kept when those of archived months have left.
func (p *pruned) named(e *Engine) (out []uint64) {
	stays := map[uint64]bool{}
	err := e.View(context.Background(), "acme", func(v store.View) error {
		return v.PrunedSections(1, func(s *ledger.Section) error {
			for i := range s.Rows {
				stays[s.Rows[i].Seq] = true
			}
			return nil
		})
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for i := uint64(0); i*tree.TileRows < p.head.Seq; i++ {
		out = append(out, tree.KeptLeaves(i, p.head.Seq, func(seq uint64) bool { return stays[seq] })...)
	}
	return out
}

// again is the store after a restart, and rebuilt from its journal alone.
func (p *pruned) again(e *Engine, what string) *Engine {
	p.t.Helper()
	fs := e.options.FS
	mustEnd(p.t, e)
	e = mustOpen(p.t, tiny(fs, p.clock.Now))
	p.check(e, what+", after a restart")
	mustEnd(p.t, e)
	if err := Rebuild(tiny(fs, p.clock.Now)); err != nil {
		p.t.Fatalf("%s: rebuild: %v", what, err)
	}
	e = mustOpen(p.t, tiny(fs, p.clock.Now))
	p.check(e, what+", rebuilt")
	return e
}

// Given months that leave one after the other or at once, then exactly the leaves stay that are needed, the tree is
// what it was, and the journal alone gives it again, tiles included.
func TestPruningKeepsTheTree(t *testing.T) {
	var ends [2][]uint64
	for run, months := range [][][]calendar.Month{{{older}, {newer}}, {{newer, older}}} {
		p, e := newPruned(t, vfs.NewMem(), nil)
		for _, some := range months {
			for _, m := range some {
				p.archive(e, m)
			}
			p.head = ledger.Head{}
			p.check(e, "before")
			if p.prune(e) == 0 {
				t.Fatal("nothing has left")
			}
			got := p.check(e, "pruned")
			if want := p.named(e); !slices.Equal(got, want) {
				t.Errorf("leaves of %d rows were kept, want those of %d: %v, want %v", len(got), len(want), got, want)
			}
			e = p.again(e, "pruned")
			if p.prune(e) != 0 {
				t.Error("what has left leaves again")
			}
			ends[run] = got
		}
		if e.journal.Sealed() < 3 {
			t.Errorf("%d segments are too few for the test", e.journal.Sealed())
		}
		mustEnd(t, e)
	}
	if !slices.Equal(ends[0], ends[1]) {
		t.Errorf("month by month the leaves of %d rows are kept, at once those of %d", len(ends[0]), len(ends[1]))
	}
}

// snaps takes a copy of the disk around every rename of a segment: what a power failure there leaves.
type snaps struct {
	vfs.FS
	disk   *vfs.MemFS
	mu     sync.Mutex // guards copies: the next segment is prepared beside the pruning
	copies []*vfs.MemFS
}

// take returns the copies since the last call.
func (s *snaps) take() []*vfs.MemFS {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.copies
	s.copies = nil
	return out
}

func (s *snaps) Rename(from, to string) error {
	if !strings.HasSuffix(to, ".journal") {
		return s.FS.Rename(from, to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = append(s.copies, s.disk.CrashClone(vfs.CrashCloneCfg{}))
	err := s.FS.Rename(from, to)
	s.copies = append(s.copies, s.disk.CrashClone(vfs.CrashCloneCfg{}))
	return err
}

// Given a power failure before or after any segment is replaced, then the tree can be computed from what is there, by a
// start, by a rebuild, and after the pruning was ended.
func TestPowerFailsWhilePruning(t *testing.T) {
	disk := vfs.NewCrashableMem()
	fs := &snaps{FS: disk, disk: disk}
	p, e := newPruned(t, fs, nil)
	p.archive(e, older)
	p.prune(e)
	p.archive(e, newer)
	p.check(e, "whole")
	fs.take()
	p.prune(e)
	p.check(e, "pruned")
	mustEnd(t, e)
	copies := fs.take()
	if len(copies) < 8 {
		t.Fatalf("%d copies are too few", len(copies))
	}
	for i := 0; i < len(copies); i += pruneStride {
		what := fmt.Sprintf("copy %d of %d", i+1, len(copies))
		e := mustOpen(t, tiny(copies[i], p.clock.Now))
		p.check(e, what)
		e = p.again(e, what)
		p.prune(e)
		p.check(e, what+", pruned on")
		e = p.again(e, what+", pruned on")
		mustEnd(t, e)
	}
}

// Given a state from before the pruning that ends inside of a tile, when a start replays what is left of the tile,
// which is its hash, then the tree is what it was.
func TestAStateFromBeforeThePruning(t *testing.T) {
	disk := vfs.NewCrashableMem()
	saved := uint64(0)
	p, e := newPruned(t, disk, func(e *Engine, rows uint64) {
		if saved == 0 && rows > midTile {
			checkpointNow(t, e)
			saved = e.byID["acme"].published.Load().head.Seq
		}
	})
	p.archive(e, older)
	p.check(e, "whole")
	p.prune(e)
	p.check(e, "pruned")
	left := disk.CrashClone(vfs.CrashCloneCfg{})
	mustEnd(t, e)
	before := mustState(t, left)
	if before.Tree.Size() != saved || tileOf(saved) != tileOf(midTile) || saved%tree.TileRows == 0 {
		t.Fatalf("the state has %d rows, %d were saved", before.Tree.Size(), saved)
	}
	e = mustOpen(t, tiny(left, p.clock.Now))
	p.check(e, "replayed")
	mustEnd(t, p.again(e, "replayed"))
}

// mustState reads the head that the state has.
func mustState(t *testing.T, fs *vfs.MemFS) ledger.Head {
	e, err := open(&Options{Dir: "data", FS: fs.CrashClone(vfs.CrashCloneCfg{}), Kinds: storetest.Kinds(),
		NoSlices: true})
	if err != nil {
		t.Fatal(err)
	}
	heads, err := e.state.Heads()
	if err = errors.Join(err, e.release()); err != nil || len(heads) != 1 {
		t.Fatalf("%d heads: %v", len(heads), err)
	}
	return heads[0].Head
}

// Given what is left of a segment, when a bit of it flips, then a rebuild refuses it: what was kept of the tree is as
// well guarded as a row.
func TestFlippedBitsOfKeptHashesAreFound(t *testing.T) {
	disk := vfs.NewCrashableMem()
	p, e := newPruned(t, disk, nil)
	p.archive(e, older)
	p.prune(e)
	mustEnd(t, e)
	path := disk.PathJoin("data", journalDir, "0000000001.journal")
	f, err := disk.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for at := int64(4096); at < int64(len(all)); at += int64(len(all)) / 40 {
		damaged := disk.CrashClone(vfs.CrashCloneCfg{})
		f, err := damaged.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{all[at] ^ 1<<(at%8)}, at)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Rebuild(tiny(damaged, p.clock.Now)); err == nil {
			t.Errorf("a bit of byte %d of %d flipped, and nothing is said", at, len(all))
		}
	}
}
