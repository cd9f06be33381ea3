package sinks_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/secrets"
	"github.com/tallystick/tallystick/internal/service/sinks"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/naive"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// plain is a vault that hides nothing.
type plain struct{}

func (plain) Seal(b []byte, _ secrets.Owner) ([]byte, error) { return slices.Clone(b), nil }
func (plain) Open(b []byte, _ secrets.Owner) ([]byte, error) { return slices.Clone(b), nil }

func anywhere(context.Context, *sink.Sink) error { return nil }

func newService(s store.Store) *sinks.Service {
	return sinks.New(s, sinks.Options{Vault: plain{}, Check: anywhere, Overlap: time.Hour, Random: crand.Reader})
}

// renderer writes a row as its number and type.
func renderer(store.View) (func([]byte, *ledger.Row) []byte, error) {
	return func(b []byte, r *ledger.Row) []byte { return append(strconv.AppendUint(b, r.Seq, 10), '!') }, nil
}

// receiver is the outside world: it takes deliveries, or does not, as the test has it.
type receiver struct {
	mu      sync.Mutex // guards what follows
	changed chan struct{}
	faults  func(n int, d *sinks.Delivery) fault
	calls   int
	by      map[string]string              // what came under an id
	rows    map[string][]uint64            // by tenant and sink, each once, as they came first
	seen    map[string]map[uint64]struct{} // the same
	wrong   []string
}

// fault is what a receiver does with a delivery.
type fault int

const (
	takes       fault = iota
	fails             // without having read it
	takesAndCut       // it has it, and the sender does not know
	hangs             // until the sender gives up
	gone
)

func newReceiver(faults func(n int, d *sinks.Delivery) fault) *receiver {
	return &receiver{changed: make(chan struct{}), faults: faults, by: map[string]string{},
		rows: map[string][]uint64{}, seen: map[string]map[uint64]struct{}{}}
}

func (r *receiver) Carrier(string, *sink.Sink) (sinks.Carrier, error) { return r, nil }
func (r *receiver) Close() error                                      { return nil }

func (r *receiver) Deliver(ctx context.Context, d *sinks.Delivery) error {
	r.mu.Lock()
	r.calls++
	what := r.faults(r.calls, d)
	if what == takes || what == takesAndCut {
		r.take(d)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	switch what {
	case fails:
		return errors.New("no")
	case takesAndCut:
		return errors.New("the connection was cut")
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	case gone:
		return sinks.ErrGone
	}
	return nil
}

func (r *receiver) take(d *sinks.Delivery) {
	var content []string
	for _, row := range d.Rows {
		content = append(content, string(row.Body)+row.Type)
	}
	text := strings.Join(content, " ")
	if before, again := r.by[d.ID]; again && before != text {
		r.wrong = append(r.wrong, fmt.Sprintf("%s was %q and is %q", d.ID, before, text))
	}
	r.by[d.ID] = text
	to := d.Tenant + "/" + d.Sink
	if r.seen[to] == nil {
		r.seen[to] = map[uint64]struct{}{}
	}
	for _, row := range d.Rows {
		if _, again := r.seen[to][row.Seq]; again {
			continue
		}
		if last := r.rows[to]; len(last) > 0 && last[len(last)-1] > row.Seq && !d.Replayed {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: row %d came after %d", to, row.Seq, last[len(last)-1]))
		}
		r.seen[to][row.Seq] = struct{}{}
		r.rows[to] = append(r.rows[to], row.Seq)
	}
}

// until waits for the receiver to be as the condition says, which holds its lock.
func (r *receiver) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		done, changed := ok(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// world is a store with tenants that have a meter, and a service.
type world struct {
	*testing.T
	store   store.Store
	service *sinks.Service
}

func newWorld(t *testing.T, s store.Store, tenants ...string) *world {
	t.Helper()
	for _, id := range tenants {
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	return &world{t, s, newService(s)}
}

func (w *world) record(id string, names ...string) {
	w.Helper()
	var events []usage.Event
	for _, name := range names {
		events = append(events, storetest.Fact(name, "calls", "c", storetest.Ago(0), "1"))
	}
	if _, err := w.store.Record(context.Background(), store.Batch{Tenant: id, Events: events}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(id string, change func(*sink.Sink), start sinks.Start) sink.Sink {
	w.Helper()
	s := sink.Sink{Name: "s", Way: sink.Webhook, URL: "https://r.example", Filter: sink.Filter{Rows: sink.AllRows},
		Batch: 3}
	if change != nil {
		change(&s)
	}
	out, _, err := w.service.Create(context.Background(), "test", id, s, "", start)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// run delivers until stop is called.
func (w *world) run(r sinks.Carriers, change func(*sinks.RunnerOptions)) (stop func(), runner *sinks.Runner) {
	w.Helper()
	o := sinks.RunnerOptions{Render: renderer, Pause: time.Millisecond, Poll: 10 * time.Millisecond,
		Retries:     slices.Repeat([]time.Duration{time.Millisecond}, 1000),
		AttemptTime: 5 * time.Second, ClaimTime: 10 * time.Second,
		Failed: func(tenantID, sinkID string, err error) { w.Errorf("%s %s: %v", tenantID, sinkID, err) }}
	if change != nil {
		change(&o)
	}
	runner = sinks.NewRunner(w.store, r, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runner.Run(ctx)
	}()
	return func() { cancel(); <-done }, runner
}

// expects waits until the receiver has the rows of a ledger that the sink asks for, each in order, and nothing else.
func (w *world) expects(r *receiver, s *sink.Sink, id string) {
	w.Helper()
	var want []uint64
	err := w.store.View(context.Background(), id, func(v store.View) error {
		_, _, err := v.Rows(s.Start-1, store.RowHint{Events: true, Changes: true}, func(row *ledger.Row) bool {
			rows, rowType := sink.Events, "usage.recorded"
			if row.Kind() == ledger.ChangeRow {
				rows, rowType = sink.Changes, row.Change.Type
			}
			about := row.Kind() == ledger.ChangeRow && row.Change.EntityID == s.ID
			if !about && s.Wants(rows, rowType) {
				want = append(want, row.Seq)
			}
			return true
		})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	to := id + "/" + s.ID
	r.until(w.T, fmt.Sprintf("%s has %d rows", to, len(want)), func() bool { return len(r.rows[to]) >= len(want) })
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Sorted(maps.Keys(r.seen[to]))
	if !slices.Equal(got, want) {
		w.Errorf("%s has %v, want %v", to, got, want)
	}
	if len(r.wrong) > 0 {
		w.Errorf("wrong: %q", r.wrong)
	}
}

func openNaive(*testing.T) store.Store { return naive.New(naive.Options{}) }

func openEngine(t *testing.T) store.Store {
	t.Helper()
	s, err := engine.Open(engine.Options{Dir: "data", FS: vfs.NewMem(), SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A delivery that keeps failing holds up its own tenant on that sink and nobody else, is FAILED in the end, listed, and
// can be replayed, marked, under the same id.
func TestADeliveryIsGivenUp(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme", "globex")
	bad := true
	r := newReceiver(nil)
	s := w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	well := w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	other := w.create("globex", nil, sinks.Start{Seq: 1})
	var replayed []string
	r.faults = func(_ int, d *sinks.Delivery) fault {
		if d.Sink == s.ID && bad && len(d.Rows) == 3 {
			return fails
		}
		if d.Replayed {
			replayed = append(replayed, d.ID)
		}
		return takes
	}
	w.record("acme", "a", "b", "c")
	stop, runner := w.run(r, func(o *sinks.RunnerOptions) {
		o.Retries = []time.Duration{time.Millisecond, time.Millisecond}
	})
	defer stop()
	w.expects(r, &well, "acme")
	w.expects(r, &other, "globex")
	ctx := context.Background()
	var items []sink.Item
	wait(t, "it is given up", func() bool {
		var err error
		if items, err = w.service.Failures(ctx, "acme", s.ID, "", 10); err != nil {
			t.Fatal(err)
		}
		return len(items) == 1 && items[0].State == sink.Failed
	})
	if i := items[0]; i.Attempts != 3 || i.Error != "no" || i.To < i.From+2 {
		t.Errorf("the failure is %+v", i)
	}
	wait(t, "the tenant's answers say so", func() bool { return runner.Failing("acme") && !runner.Failing("globex") })
	got, err := w.service.Get(ctx, "acme", s.ID)
	if err != nil || got.State != "failing" {
		t.Errorf("the sink is %+v: %v", got, err)
	}
	w.record("acme", "d") // which goes out behind what was given up
	r.until(t, "the next row", func() bool { return len(r.rows["acme/"+s.ID]) == 1 })
	r.mu.Lock()
	bad = false
	r.mu.Unlock()
	if _, err := w.service.ReplayFailure(ctx, "test", "acme", s.ID, items[0].ID); err != nil {
		t.Fatal(err)
	}
	w.expects(r, &s, "acme")
	wait(t, "it is recovered", func() bool {
		items, err := w.service.Failures(ctx, "acme", s.ID, "", 10)
		return err == nil && len(items) == 1 && items[0].State == sink.Recovered
	})
	_, err = w.service.ReplayFailure(ctx, "test", "acme", s.ID, items[0].ID)
	if !problem.Is(err, problem.Conflict) {
		t.Errorf("a replay of what is recovered: %v", err)
	}
	wait(t, "nothing fails any more", func() bool { return !runner.Failing("acme") })
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := fmt.Sprintf("%s:1:%d-%d", s.ID, items[0].From, items[0].To); !slices.Equal(replayed, []string{want}) {
		t.Errorf("replayed %q, want %q", replayed, want)
	}
}

// wait asks until something is so. It is for what no channel says.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(2*time.Minute), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// A receiver who wants no more pauses the sink; when it is resumed nothing is missing.
func TestGonePausesASink(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	leave := true
	r := newReceiver(func(int, *sinks.Delivery) fault {
		if leave {
			return gone
		}
		return takes
	})
	s := w.create("acme", nil, sinks.Start{Seq: 1})
	w.record("acme", "a", "b")
	stop, _ := w.run(r, nil)
	defer stop()
	ctx := context.Background()
	wait(t, "it is paused", func() bool {
		got, err := w.service.Get(ctx, "acme", s.ID)
		return err == nil && got.State == "paused"
	})
	r.mu.Lock()
	leave = false
	r.mu.Unlock()
	w.record("acme", "c")
	_, err := w.service.Change(ctx, "test", "acme", s.ID, func(s *sink.Sink) error { s.Paused = false; return nil })
	if err != nil {
		t.Fatal(err)
	}
	w.expects(r, &s, "acme")
}

// What a sink was to deliver stays the same when the sink changes after the delivery was begun.
func TestABegunDeliveryStaysAsItWas(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	bad := true
	r := newReceiver(nil)
	var ids []string
	r.faults = func(_ int, d *sinks.Delivery) fault {
		if len(ids) == 0 || ids[len(ids)-1] != d.ID {
			ids = append(ids, d.ID)
		}
		if bad {
			return fails
		}
		return takes
	}
	s := w.create("acme", func(s *sink.Sink) { s.Batch = 3 }, sinks.Start{Seq: 1})
	w.record("acme", "a", "b", "c")
	stop, _ := w.run(r, nil)
	r.until(t, "an attempt", func() bool { return r.calls > 0 })
	ctx := context.Background()
	_, err := w.service.Change(ctx, "test", "acme", s.ID, func(s *sink.Sink) error {
		s.Batch, s.Rows = 1, sink.Changes
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stop() // and the next node finds it begun
	r.mu.Lock()
	bad, r.calls = false, 0
	r.mu.Unlock()
	stop, _ = w.run(r, nil)
	defer stop()
	r.until(t, "the delivery", func() bool { return len(r.rows["acme/"+s.ID]) >= 3 })
	r.mu.Lock()
	defer r.mu.Unlock()
	// Row 3 is about the sink itself.
	if rows := r.rows["acme/"+s.ID]; !slices.Equal(rows[:3], []uint64{1, 2, 4}) || ids[0] != s.ID+":1:1-4" {
		t.Errorf("rows %v under %q", rows, ids)
	}
}

// A deleted sink follows nothing, and neither does one that is not in the ledger. One that was made while a runner runs
// follows at once when the runner is notified, and one whose node died before that is found.
func TestWhoFollows(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	ctx := context.Background()
	gone := w.create("acme", nil, sinks.Start{Now: true})
	if err := w.store.Follow(ctx, store.Following{Tenant: "acme", Follower: sink.Follower(gone.ID)}); err != nil {
		t.Fatal(err)
	}
	if err := w.service.Delete(ctx, "test", "acme", gone.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.service.Get(ctx, "acme", gone.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("a deleted sink: %v", err)
	}
	if list, err := w.service.List(ctx, "acme", "", 10); err != nil || len(list) != 0 {
		t.Errorf("the list is %v: %v", list, err)
	}
	for _, name := range []string{"sink:never", "another"} {
		if err := w.store.Follow(ctx, store.Following{Tenant: "acme", Follower: name}); err != nil {
			t.Fatal(err)
		}
	}
	before := w.create("acme", nil, sinks.Start{Now: true})
	follow := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		wait(t, fmt.Sprintf("%q follow", want), func() bool {
			list, err := w.store.Followings(ctx, "", "", 10)
			var got []string
			for _, f := range list {
				got = append(got, f.Follower)
			}
			return err == nil && slices.Equal(got, want)
		})
	}
	r := newReceiver(func(int, *sinks.Delivery) fault { return takes })
	stop, runner := w.run(r, nil)
	follow("another", sink.Follower(before.ID))
	after := w.create("acme", nil, sinks.Start{Now: true})
	runner.Committed("acme", audit.Of("sink", "created", after.ID))
	follow("another", sink.Follower(before.ID), sink.Follower(after.ID))
	w.record("acme", "a")
	w.expects(r, &after, "acme")
	stop()
	lost := w.create("acme", nil, sinks.Start{Now: true}) // nobody is notified
	stop, _ = w.run(r, nil)
	follow("another", sink.Follower(before.ID), sink.Follower(after.ID), sink.Follower(lost.ID))
	stop()
}

// A replay that is asked for comes in batches, marked, and without moving the sink.
func TestAReplayIsAskedFor(t *testing.T) {
	w := newWorld(t, openEngine(t), "acme")
	var parts []string
	r := newReceiver(nil)
	r.faults = func(_ int, d *sinks.Delivery) fault {
		if d.Replayed {
			parts = append(parts, fmt.Sprintf("%d-%d", d.From, d.To))
		}
		return takes
	}
	s := w.create("acme", func(s *sink.Sink) { s.Rows = sink.Events }, sinks.Start{Now: true})
	w.record("acme", "a", "b", "c", "d", "e")
	stop, _ := w.run(r, nil)
	defer stop()
	w.expects(r, &s, "acme")
	ctx := context.Background()
	first := s.Start + 1
	for _, bad := range [][2]uint64{{0, 0}, {5, 4}, {1, 1000}} {
		if _, err := w.service.Replay(ctx, "test", "acme", s.ID, bad[0], bad[1]); !problem.Is(err, problem.Invalid) {
			t.Errorf("a replay of %v: %v", bad, err)
		}
	}
	item, err := w.service.Replay(ctx, "test", "acme", s.ID, first, first+3)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "it is done", func() bool {
		items, err := w.service.Failures(ctx, "acme", s.ID, "", 10)
		return err == nil && len(items) == 1 && items[0].ID == item.ID && items[0].State == sink.Recovered
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	want := []string{fmt.Sprintf("%d-%d", first, first+2), fmt.Sprintf("%d-%d", first+3, first+3)}
	if !slices.Equal(parts, want) || len(r.wrong) > 0 {
		t.Errorf("parts %v, want %v; %v", parts, want, r.wrong)
	}
}

// stuckStore is a store that a node cannot reach for a while.
type stuckStore struct {
	store.Store
	still atomic.Bool
}

func (s *stuckStore) Advance(ctx context.Context, c store.Claim, to store.Standing, ttl time.Duration) error {
	if s.still.Load() {
		return problem.New(problem.Unavailable, "it stands still")
	}
	return s.Store.Advance(ctx, c, to, ttl)
}
