package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// one is a batch of one fact.
func one(id string) []usage.Event {
	return []usage.Event{storetest.Fact(id, "calls", "c", storetest.Ago(0), "1")}
}

func waiting(facts int) *work {
	return &work{events: make([]usage.Event, facts), done: make(chan struct{}, 1)}
}

// takeOne takes the next work, or nil: any work uses up the bounds.
func takeOne(q *queue) *work {
	if works := q.take(nil, 1, 1); len(works) > 0 {
		return works[0]
	}
	return nil
}

func mustPut(t *testing.T, q *queue, f *fifo, w *work) *work {
	t.Helper()
	if err := q.put(f, w); err != nil {
		t.Fatal(err)
	}
	return w
}

// Given a tenant that floods the queue with batches of any size, when another one comes, then it waits for about a
// turn's worth of facts and no more, however often it comes.
func TestAFloodDelaysOthersByOneTurn(t *testing.T) {
	for _, size := range []int{1, 7, quantum - 1, quantum, quantum + 1, store.MaxBatch} {
		q := newQueue()
		var flood, calm fifo
		for range maxQueuedTenantFacts / size {
			mustPut(t, q, &flood, waiting(size))
		}
		takeOne(q)
		for round := range 3 {
			w := mustPut(t, q, &calm, waiting(1))
			ahead := 0
			for {
				got := takeOne(q)
				if got == nil {
					break
				}
				if got == w {
					break
				}
				ahead += got.cost()
			}
			if limit := 2*quantum + size; ahead > limit {
				t.Errorf("batches of %d, round %d: %d facts went ahead, want %d at most", size, round, ahead, limit)
			}
		}
	}
}

// Given several tenants that all have much waiting, when the committer takes, then each gets the same share of facts,
// whatever the size of its batches.
func TestTurnsAreSharedByFactsNotByBatches(t *testing.T) {
	q := newQueue()
	sizes := []int{1, 10, 400, 3000}
	fifos, got := make([]fifo, len(sizes)), make([]int, len(sizes))
	owner := map[*work]int{}
	for i, size := range sizes {
		for range 90_000 / size {
			owner[mustPut(t, q, &fifos[i], waiting(size))] = i
		}
	}
	for taken := 0; taken < 200_000; {
		w := takeOne(q)
		got[owner[w]] += w.cost()
		taken += w.cost()
	}
	for i := range got {
		if d := got[i] - got[0]; d > 2*quantum+3000 || d < -2*quantum-3000 {
			t.Errorf("batches of %v got %v facts through", sizes, got)
		}
	}
}

// A tenant's own works come out as they went in, whatever comes in between.
func TestOneTenantIsServedInOrder(t *testing.T) {
	q := newQueue()
	var a, b fifo
	var want, got []*work
	others := map[*work]bool{}
	for i := range 300 {
		want = append(want, mustPut(t, q, &a, waiting(1+i*13%700)))
		others[mustPut(t, q, &b, waiting(1+i*7%90))] = true
	}
	for w := takeOne(q); w != nil; w = takeOne(q) {
		if !others[w] {
			got = append(got, w)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d works came out, of %d, in another order", len(got), len(want))
	}
}

// A full queue says so at once, for one tenant, for all of them, and for bytes, and takes more when there is room
// again.
func TestFullQueuesSayBusy(t *testing.T) {
	busy := func(err error) bool { return problem.Is(err, problem.Busy) }
	q := newQueue()
	var a, b, c fifo
	first := mustPut(t, q, &a, waiting(1))
	mustPut(t, q, &a, waiting(maxQueuedTenantFacts-1))
	if err := q.put(&a, waiting(1)); !busy(err) {
		t.Errorf("one tenant's part is full: %v", err)
	}
	mustPut(t, q, &b, waiting(maxQueuedFacts-maxQueuedTenantFacts))
	if err := q.put(&c, waiting(1)); !busy(err) {
		t.Errorf("the queue is full: %v", err)
	}
	for got := takeOne(q); got != first; got = takeOne(q) {
		if got == nil {
			t.Fatal("the first work is gone")
		}
	}
	mustPut(t, q, &c, waiting(1))

	q = newQueue()
	big := waiting(1)
	big.bound = maxQueuedBytes
	mustPut(t, q, &a, big)
	small := waiting(1)
	small.bound = 1
	if err := q.put(&b, small); !busy(err) {
		t.Errorf("the queue is full of bytes: %v", err)
	}
	if q.waiting() != 1 {
		t.Errorf("%d facts wait, want those that were taken in alone", q.waiting())
	}
}

// Works that their callers gave up on are passed over and leave the counts as they were.
func TestGivenUpWorkIsPassedOver(t *testing.T) {
	q := newQueue()
	var a fifo
	gone := mustPut(t, q, &a, waiting(5))
	stays := mustPut(t, q, &a, waiting(5))
	gone.taken.Store(true)
	if got := takeOne(q); got != stays {
		t.Error("took a work that was given up")
	}
	if takeOne(q) != nil || q.waiting() != 0 || q.bytes != 0 || len(q.active) != 0 {
		t.Errorf("the queue is not empty: %d facts, %d bytes, %d active", q.waiting(), q.bytes, len(q.active))
	}
}

// held is an engine whose committer stands still inside an update until it is let go.
func held(t *testing.T) (e *Engine, letGo func()) {
	t.Helper()
	e = mustOpen(t, tiny(vfs.NewMem(), storetest.NewClock().Now))
	for _, id := range crashTenants {
		if err := storetest.Create(e, id, crashMeters()...); err != nil {
			t.Fatal(err)
		}
	}
	inside, gate := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	var once sync.Once
	go func() {
		done <- e.Update(context.Background(), "acme", func(store.Tx) error {
			once.Do(func() { close(inside) })
			<-gate
			return nil
		})
	}()
	<-inside
	return e, func() {
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// queued waits until that many facts are in the queue.
func queued(e *Engine, n int) {
	for e.queue.waiting() < n {
		<-e.queue.wake
		select {
		case e.queue.wake <- struct{}{}:
		default:
		}
	}
}

// Given a caller whose context ends while its facts wait, then it is answered so and none of them is ever recorded.
func TestGivingUpInTheQueueLeavesNoTrace(t *testing.T) {
	e, letGo := held(t)
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error, 1)
	go func() {
		_, err := e.Record(ctx, store.Batch{Tenant: "globex", Events: one("gone")})
		answer <- err
	}()
	queued(e, 1)
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller was answered %v", err)
	}
	if _, err := e.Record(ctx, store.Batch{Tenant: "globex", Events: one("never")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that had given up before was answered %v", err)
	}
	letGo()
	vs, err := e.Record(context.Background(),
		store.Batch{Tenant: "globex", Events: append(one("gone"), one("never")...)})
	if err != nil || vs[0].Status != usage.Accepted || vs[1].Status != usage.Accepted ||
		vs[0].Seq != uint64(2+len(crashMeters())) {
		t.Errorf("what was given up on left a trace: %+v, %v", vs, err)
	}
	mustEnd(t, e)
}

// Given callers that wait, when the engine is closed, then all of them are answered, those that were queued with
// verdicts.
func TestCloseAnswersEverybody(t *testing.T) {
	e, letGo := held(t)
	const callers = 20
	type answer struct {
		vs  []usage.Verdict
		err error
	}
	answers := make(chan answer, callers)
	for i := range callers {
		go func() {
			vs, err := e.Record(context.Background(),
				store.Batch{Tenant: crashTenants[i%2], Events: one(fmt.Sprint("w", i))})
			answers <- answer{vs, err}
		}()
	}
	queued(e, callers)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	for !e.queue.isClosed() {
		<-e.queue.wake
		select {
		case e.queue.wake <- struct{}{}:
		default:
		}
	}
	letGo()
	for range callers {
		if a := <-answers; a.err != nil || a.vs[0].Status != usage.Accepted {
			t.Errorf("a waiting caller was answered %+v, %v", a.vs, a.err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	_, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: one("late")})
	if !problem.Is(err, problem.Unavailable) {
		t.Errorf("a caller after the close was answered %v", err)
	}
}
