package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

const calls = "calls"

// manyBatches are enough for several runs, checkpoints and segments of the small options.
const manyBatches = 20

// fill gives a store two tenants and batches of ten facts for each.
func fill(t testing.TB, e *Engine, batches int) {
	t.Helper()
	for _, id := range []string{"acme", "globex"} {
		if err := storetest.Create(e, id, meter.Meter{Slug: calls, Aggregation: meter.Sum, Lateness: time.Hour,
			Future: time.Hour}); err != nil {
			t.Fatal(err)
		}
		for batch := range batches {
			var events []usage.Event
			for i := range 10 {
				events = append(events, storetest.With(storetest.Fact(fmt.Sprint(batch, "-", i), calls,
					fmt.Sprint("c", i%3), storetest.Ago(0), "2"),
					storetest.Text("padding", strings.Repeat(fmt.Sprint(i), 3900))))
			}
			if _, err := e.Record(context.Background(), store.Batch{Tenant: id, Events: events}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// damaged flips a bit of each file whose name has the suffix and that is long enough, and returns how many there were.
func damaged(t testing.TB, fs vfs.FS, dir, suffix string, at int64) (n int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if read, _ := f.ReadAt(b[:], at); read == 1 {
			b[0] ^= 4
			if _, err := f.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func TestVerifyReadsEverything(t *testing.T) {
	e := mustOpen(t, small(vfs.NewMem(), storetest.NewClock().Now))
	fill(t, e, manyBatches)
	var done, total int64
	err := e.Verify(context.Background(), func(d, of int64) {
		if d < done || d > of {
			t.Errorf("progress went from %d to %d of %d", done, d, of)
		}
		done, total = d, of
	})
	if err != nil {
		t.Fatal(err)
	}
	if done != total || total < e.journal.Size() {
		t.Errorf("progress ended at %d of %d; the journal alone has %d bytes", done, total, e.journal.Size())
	}
	mustEnd(t, e)
}

// Given an answer, when everything is verified at once, while the committer may not have put down its tools yet, then
// neither gets in the other's way.
func TestVerifyRightAfterAnAnswer(t *testing.T) {
	e, ctx := mustOpen(t, small(vfs.NewMem(), storetest.NewClock().Now)), context.Background()
	fill(t, e, 1)
	for i := range 200 {
		fact := storetest.Fact(fmt.Sprint("single-", i), calls, "c", storetest.Ago(0), "1")
		if _, err := e.Record(ctx, store.Batch{Tenant: "acme", Events: []usage.Event{fact}}); err != nil {
			t.Fatal(err)
		}
		if err := e.Verify(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	mustEnd(t, e)
}

// A key without a fact would refuse a new fact as a duplicate that was never billed.
func TestVerifyFindsAKeyWithoutAFact(t *testing.T) {
	e := mustOpen(t, small(vfs.NewMem(), storetest.NewClock().Now))
	fill(t, e, manyBatches)
	e.mu.Lock()
	e.index.Insert(keyindex.Entry{Hash: keyindex.Hash{Hi: 1, Lo: 2}, Seq: 3})
	e.mu.Unlock()
	if err := e.Verify(context.Background(), nil); err == nil ||
		!strings.Contains(err.Error(), "401 keys for 400 facts") {
		t.Errorf("verify said %v", err)
	}
	mustEnd(t, e)
}

// A fact without a key would be counted again when it is sent again.
func TestVerifyFindsAFactWithoutAKey(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	e := mustOpen(t, small(fs, now))
	fill(t, e, manyBatches)
	right := e.index
	other, err := keyindex.Open(keyindex.Options{FS: fs, Dir: "other", StoreID: e.id})
	if err != nil {
		t.Fatal(err)
	}
	swap := func(to *keyindex.Index) {
		e.mu.Lock() // the committer may just look whether it is full
		defer e.mu.Unlock()
		e.index = to
	}
	swap(other)
	if err := e.Verify(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "does not know row") {
		t.Errorf("verify said %v", err)
	}
	swap(right)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, e)
}

func TestVerifyFindsADamagedSegment(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	e := mustOpen(t, small(fs, now))
	fill(t, e, manyBatches)
	mustEnd(t, e)
	// The first segment is sealed and the state reflects it: a start need not read it.
	if n := damaged(t, fs, "data/journal", sealedSegment(t, fs), 8192); n != 1 {
		t.Fatalf("damaged %d files", n)
	}
	e = mustOpen(t, small(fs, now))
	err := e.Verify(context.Background(), nil)
	var damage *journal.Damage
	if !errors.As(err, &damage) || damage.Segment != 1 {
		t.Errorf("verify said %v", err)
	}
	mustEnd(t, e)
}

// sealedSegment names the first segment, which is sealed when there are two more: the last one may be empty.
func sealedSegment(t testing.TB, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("data/journal")
	if err != nil || len(names) < 3 {
		t.Fatalf("segments %v: %v", names, err)
	}
	return slices.Min(names)
}

func TestVerifyFindsADamagedRun(t *testing.T) {
	fs, now := vfs.NewMem(), storetest.NewClock().Now
	e := mustOpen(t, small(fs, now))
	fill(t, e, manyBatches)
	mustEnd(t, e)
	e = mustOpen(t, small(fs, now))
	if damaged(t, fs, "data/keys", ".run", 100) == 0 {
		t.Fatal("no runs")
	}
	err := e.Verify(context.Background(), nil)
	var damage *keyindex.Damage
	if !errors.As(err, &damage) {
		t.Errorf("verify said %v", err)
	}
	mustEnd(t, e)
}
