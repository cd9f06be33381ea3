package retention_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// restless is an embedded store that checkpoints, flushes keys and slices all the time.
func restless(fs vfs.FS, now func() time.Time) engine.Options {
	return engine.Options{Dir: "data", FS: fs, Now: now,
		SegmentBytes: 64 << 10, IndexEntries: 64, CheckpointBytes: 8 << 10, SliceBytes: 1}
}

func openRestless(t *testing.T, now func() time.Time) store.Store {
	return mustOpen(t, restless(vfs.NewMem(), now))
}

// examine verifies a store that serves: its files, then the books of one moment.
func examine(ctx context.Context, e *engine.Engine, during func()) (verify.Report, error) {
	if err := e.Verify(ctx, func(int64, int64) { during() }); err != nil {
		return verify.Report{}, fmt.Errorf("files: %w", err)
	}
	moment, err := e.Snapshot(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	r, err := verify.Run(ctx, moment, verify.Options{Progress: func(uint64, uint64) { during() }})
	return r, errors.Join(err, moment.Release())
}

// Given facts, corrections, adjustments and closes that are committed between any two sections that verification
// reads, in the very counters it compares, then it finds nothing; and all that was there when it began was read.
func TestVerifyWhileTheLedgerGrows(t *testing.T) {
	l := newLife(t, openRestless)
	defer func() { mustClose(t, l.s) }()
	e, _ := l.s.(*engine.Engine)
	grow := func(n int) {
		now := calendar.FromTime(l.clock.Now())
		l.deliver(l.facts(fmt.Sprint("grow", n))...)
		l.both(func(tx store.Tx) error {
			id, err := storetest.Adjust(tx, "bytes", "one", l.month(), "3", "")
			if err == nil && n%2 == 0 {
				_, err = storetest.Adjust(tx, "bytes", "one", l.month(), "-3", id)
			}
			return err
		})
		l.deliver(storetest.Fact(fmt.Sprint("fresh", n), "peak", fmt.Sprint("customer", n), now, "1"))
		l.clock.Advance(time.Hour)
	}
	n := 0
	for ; n < 20; n++ {
		grow(n)
	}
	for round := range 3 {
		before, calls := l.head(acme), 0
		r, err := examine(ctx, e, func() {
			if calls++; calls%7 == 1 && calls < 200 {
				grow(n)
				n++
			}
		})
		if err != nil || !r.OK() {
			t.Fatalf("round %d: %v %v", round, err, r.Differences)
		}
		if after := l.head(acme); r.Rows < before.Seq || after.Seq < before.Seq+100 {
			t.Errorf("round %d: %d rows verified, %d at the start, %d at the end", round, r.Rows, before.Seq, after.Seq)
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
	}
	l.compare()
}

// Given a deployment that takes facts, slices them, archives months and prunes while it is verified over and over,
// then no run finds anything or stands in the way of the rest.
func TestVerifyOverAndOverWhileRowsLeave(t *testing.T) {
	l := newLife(t, openRestless)
	defer func() { mustClose(t, l.s) }()
	e, _ := l.s.(*engine.Engine)
	stop := make(chan struct{})
	runs := make(chan struct{})
	var verifying sync.WaitGroup
	verifying.Go(func() {
		defer close(runs)
		for {
			if r, err := examine(ctx, e, func() {}); err != nil || !r.OK() {
				t.Errorf("%v %v", err, r.Differences)
				return
			}
			select {
			case runs <- struct{}{}:
			case <-stop:
				return
			}
		}
	})
	pruned := uint64(0)
	for month := range 8 {
		for day := range 6 {
			l.clock.Advance(100 * time.Hour)
			l.deliver(l.facts(fmt.Sprintf("%d-%d", month, day))...)
		}
		closing := l.month()
		l.clock.Set(closing.End().Time().Add(26 * time.Hour))
		l.both(func(tx store.Tx) error { return storetest.ClosePeriod(tx, closing) })
		pruned += l.retain().Pruned
		<-runs // at least one for each month, whoever is faster
	}
	close(stop)
	verifying.Wait()
	if pruned < 100 {
		t.Errorf("only %d rows have left", pruned)
	}
}

// A counter that is off by one is found at every run, whatever is committed meanwhile, and nothing else is.
func TestVerifyFindsAWrongCounterWhileTheLedgerGrows(t *testing.T) {
	fs, clock := vfs.NewMem(), storetest.NewClock()
	e := mustOpen(t, restless(fs, clock.Now))
	if err := storetest.Create(e, acme, storetest.NewMeter("bytes", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	n := 0
	send := func(customer string) {
		fact := storetest.Fact(fmt.Sprint("f", n), "bytes", customer, storetest.Ago(0), "2")
		n++
		if _, err := e.Record(ctx, store.Batch{Tenant: acme, Events: []usage.Event{fact}}); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		send("quiet")
	}
	mustClose(t, e)
	plant(t, fs, store.CounterPlace{Month: storetest.Month, Meter: "bytes", Customer: "quiet"})
	e = mustOpen(t, restless(fs, clock.Now))
	defer func() { mustClose(t, e) }()
	for range 2 {
		r, err := examine(ctx, e, func() { send("busy") })
		if err != nil {
			t.Fatal(err)
		}
		var want []verify.Difference
		for _, what := range []string{", on-time rows", ", all rows", " read alone, on-time rows",
			" read alone, all rows"} {
			what = fmt.Sprintf("counter bytes of %q in 2026-11%s, count", "quiet", what)
			want = append(want, verify.Difference{Tenant: acme, What: what, Want: "100", Got: "101"})
		}
		if fmt.Sprint(r.Differences) != fmt.Sprint(want) {
			t.Errorf("differences:\n%v, want\n%v", r.Differences, want)
		}
	}
}

// plant makes a counter of a closed store wrong.
func plant(t *testing.T, fs vfs.FS, p store.CounterPlace) {
	t.Helper()
	id := storeID(t, fs)
	s, err := state.Open(state.Options{FS: fs, Dir: "data/state", StoreID: id})
	if err != nil {
		t.Fatal(err)
	}
	c, ok, err := s.Counter(1, p)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	c.OnTime.Count++
	batch := s.Begin(1)
	batch.SetCounter(1, p, state.AppendCounter(nil, &c))
	at, err := s.Reflects()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Commit(batch, id, at), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// storeID reads the file STORE.
func storeID(t *testing.T, fs vfs.FS) (id [16]byte) {
	t.Helper()
	f, err := fs.Open("data/STORE")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	if _, err := hex.Decode(id[:], []byte(words[3])); err != nil {
		t.Fatal(err)
	}
	return id
}

func mustOpen(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Verification ends soon when nobody wants it any more, and when the store closes.
func TestVerifyEnds(t *testing.T) {
	l := newLife(t, openRestless)
	e, _ := l.s.(*engine.Engine)
	for i := range 10 {
		l.deliver(l.facts(fmt.Sprint(i))...)
		l.clock.Advance(time.Hour)
	}
	stopped, stop := context.WithCancel(ctx)
	if err := e.Verify(stopped, func(int64, int64) { stop() }); !errors.Is(err, context.Canceled) {
		t.Errorf("files: %v", err)
	}
	moment, err := e.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	waiting, giveUp := context.WithCancel(ctx)
	giveUp()
	_, err = retention.New(e, l.storage).Run(waiting, retention.Options{Horizon: retention.MinHorizon})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("pruning beside a snapshot did not end: %v", err)
	}
	if _, err := e.Snapshot(waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("a second snapshot: %v", err)
	}
	closed := make(chan error, 1)
	var once sync.Once
	_, err = verify.Run(ctx, moment, verify.Options{Progress: func(uint64, uint64) {
		once.Do(func() {
			go func() { closed <- e.Close() }()
			for e.Ready(ctx) == nil { // it becomes false when the store begins to close
				runtime.Gosched()
			}
		})
	}})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("verification of a store that closes ended with %v", err)
	}
	if err := errors.Join(moment.Release(), <-closed); err != nil {
		t.Error(err)
	}
	if err := e.Verify(ctx, nil); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a closed store was verified: %v", err)
	}
}
