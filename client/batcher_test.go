package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallystick/tallystick/client"
)

// patientClock never lets an interval pass: batches are cut by size or Flush.
type patientClock struct{}

func (patientClock) Now() time.Time { return noon }

func (patientClock) Sleep(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// acceptAll answers a batch, taking every id seen before for a duplicate, and
// notes the batches.
type acceptAll struct {
	mu      sync.Mutex
	rows    map[string]int
	batches [][]string
}

func (s *acceptAll) answer(body []byte) string {
	var events []struct{ ID string }
	if err := json.Unmarshal(body, &events); err != nil {
		return err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids, results []string
	for i, e := range events {
		ids = append(ids, e.ID)
		if s.rows[e.ID]++; s.rows[e.ID] > 1 {
			results = append(results, fmt.Sprintf(`{"index":%d,"id":%q,"status":"duplicate"}`, i, e.ID))
		}
	}
	s.batches = append(s.batches, ids)
	return fmt.Sprintf(`{"accepted":%d,"duplicates":%d,"results":[%s]}`, len(events)-len(results), len(results),
		strings.Join(results, ","))
}

// RoundTrip serves in memory, for tests in a bubble of fake time, where a real
// connection would never come to rest.
func (s *acceptAll) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(s.answer(body))),
		Request: r}, nil
}

// outcomes collects what a Batcher reports.
type outcomes struct {
	mu  sync.Mutex
	all []client.Outcome
}

func (o *outcomes) add(got client.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, got)
}

func (o *outcomes) list() []client.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

func newBatcher(t *testing.T, c *client.Client, config client.BatcherConfig) *client.Batcher {
	t.Helper()
	b, err := c.NewBatcher(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustAdd(t *testing.T, b *client.Batcher, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := b.Add(context.Background(), client.Event{ID: id}); err != nil {
			t.Fatalf("add %s: %v", id, err)
		}
	}
}

func TestBatcherManyGoroutinesEachOutcomeOnce(t *testing.T) {
	const goroutines, each = 32, 200
	ledger := &acceptAll{rows: map[string]int{}}
	requests := 0
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		requests++
		lose := requests%5 == 0
		mu.Unlock()
		answer := ledger.answer(body)
		if lose { // committed, but the answer is lost
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, answer)
	}))
	defer server.Close()
	// Every fifth request is lost, whichever it is: enough attempts that one
	// batch does not meet only those.
	clock := retryClock{}
	c := newClient(t, server.URL, client.WithClock(clock),
		client.WithRetry(client.RetryPolicy{MaxAttempts: 1000, MaxBackoff: time.Millisecond}))
	var reported outcomes
	b := newBatcher(t, c, client.BatcherConfig{MaxEvents: 64, QueueSize: 200, MaxInFlight: 3, OnOutcome: reported.add})
	var adders sync.WaitGroup
	for g := range goroutines {
		adders.Go(func() {
			for i := range each {
				if err := b.Add(context.Background(),
					client.Event{ID: fmt.Sprintf("%d-%d", g, i), Meter: "m"}); err != nil {
					t.Errorf("add: %v", err)
				}
				if i%50 == 0 {
					if err := b.Flush(context.Background()); err != nil {
						t.Errorf("flush: %v", err)
					}
				}
			}
		})
	}
	adders.Wait()
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range reported.list() {
		if o.Err != nil || o.Verdict.ID != o.Event.ID || seen[o.Event.ID] {
			t.Fatalf("outcome %+v is wrong or came twice", o)
		}
		if o.Verdict.Status == client.Duplicate && o.Attempts < 2 {
			t.Errorf("%s: duplicate at the first attempt", o.Event.ID)
		}
		seen[o.Event.ID] = true
	}
	if len(seen) != goroutines*each || len(ledger.rows) != goroutines*each {
		t.Errorf("%d outcomes, %d rows, want %d of each", len(seen), len(ledger.rows), goroutines*each)
	}
}

// retryClock passes the short waits of retries at once and holds intervals.
type retryClock struct{ patientClock }

func (c retryClock) Sleep(ctx context.Context, d time.Duration) error {
	if d == time.Second {
		return c.patientClock.Sleep(ctx, d)
	}
	return ctx.Err()
}

func TestBatcherKeepsOrderWithOneInFlight(t *testing.T) {
	ledger := &acceptAll{rows: map[string]int{}}
	c := newClient(t, "http://memory", client.WithTransport(ledger), client.WithClock(patientClock{}))
	var reported outcomes
	b := newBatcher(t, c, client.BatcherConfig{MaxEvents: 7, MaxInFlight: 1, OnOutcome: reported.add})
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint(i))
	}
	mustAdd(t, b, want...)
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range reported.list() {
		got = append(got, o.Event.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes in the order %v", got)
	}
	if n := len(ledger.batches); n != 15 {
		t.Errorf("%d batches, want 14 of 7 and the rest", n)
	}
}

func TestBatcherCutsByBytes(t *testing.T) {
	// [{"id":"a"},{"id":"b"}] is 23 bytes.
	for maxBytes, want := range map[int]string{23: "[[a b] [c]]", 22: "[[a] [b] [c]]"} {
		ledger := &acceptAll{rows: map[string]int{}}
		c := newClient(t, "http://memory", client.WithTransport(ledger), client.WithClock(patientClock{}))
		b := newBatcher(t, c, client.BatcherConfig{MaxBytes: maxBytes, MaxInFlight: 1,
			OnOutcome: func(client.Outcome) {}})
		mustAdd(t, b, "a", "b", "c")
		if err := b.Add(context.Background(),
			client.Event{ID: strings.Repeat("x", 30)}); !errors.Is(err, client.ErrEventTooLarge) {
			t.Errorf("a large event: %v, want ErrEventTooLarge", err)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(ledger.batches); got != want {
			t.Errorf("at most %d bytes: batches %s, want %s", maxBytes, got, want)
		}
	}
}

func TestBatcherCutsByIntervalAndLeavesNothingRunning(t *testing.T) {
	// The bubble's clock moves only when all is at rest, and the bubble fails
	// if a goroutine outlives the test.
	synctest.Test(t, func(t *testing.T) {
		ledger := &acceptAll{rows: map[string]int{}}
		c, err := client.New("http://memory", "k", client.WithHTTPClient(&http.Client{Transport: ledger}))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var after []time.Duration
		reported := make(chan struct{}, 10)
		b := newBatcher(t, c, client.BatcherConfig{Interval: 3 * time.Second, MaxEvents: 2, MaxInFlight: 1,
			OnOutcome: func(client.Outcome) {
				after = append(after, time.Since(start))
				reported <- struct{}{}
			}})
		mustAdd(t, b, "a")
		<-reported
		mustAdd(t, b, "b", "c") // full: goes at once, and its timer must not cut the next one
		<-reported
		<-reported
		mustAdd(t, b, "d")
		<-reported
		mustAdd(t, b, "e")
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := time.Second
		if want := []time.Duration{3 * s, 3 * s, 3 * s, 6 * s, 6 * s}; !slices.Equal(after, want) {
			t.Errorf("reported after %v, want %v", after, want)
		}
	})
}

func TestBatcherWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ledger := &acceptAll{rows: map[string]int{}}
		slow := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-release
			return ledger.RoundTrip(r)
		})
		c, err := client.New("http://memory", "k", client.WithHTTPClient(&http.Client{Transport: slow}),
			client.WithClock(patientClock{}))
		if err != nil {
			t.Fatal(err)
		}
		var reported outcomes
		failing := newBatcher(t, c, client.BatcherConfig{MaxEvents: 2, QueueSize: 2, FailWhenFull: true,
			OnOutcome: reported.add})
		waiting := newBatcher(t, c, client.BatcherConfig{MaxEvents: 2, QueueSize: 2, OnOutcome: reported.add})
		mustAdd(t, failing, "a", "b")
		mustAdd(t, waiting, "c", "d")
		if err := failing.Add(t.Context(), client.Event{ID: "x"}); !errors.Is(err, client.ErrFull) {
			t.Errorf("a full queue: %v, want ErrFull", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error)
		go func() { given <- waiting.Add(ctx, client.Event{ID: "x"}) }()
		synctest.Wait()
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait given up: %v, want the cancellation", err)
		}
		go func() { given <- waiting.Add(t.Context(), client.Event{ID: "e"}) }()
		synctest.Wait()
		close(release)
		if err := <-given; err != nil {
			t.Errorf("room again: %v", err)
		}
		for _, b := range []*client.Batcher{failing, waiting} {
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.Add(t.Context(), client.Event{ID: "y"}); !errors.Is(err, client.ErrClosed) {
				t.Errorf("add after close: %v, want ErrClosed", err)
			}
			if err := b.Close(t.Context()); err != nil {
				t.Errorf("second close: %v", err)
			}
		}
		if n := len(reported.list()); n != 5 || len(ledger.rows) != 5 {
			t.Errorf("%d outcomes, %d rows; want 5: what Add refused is not sent", n, len(ledger.rows))
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestBatcherReportsWhatFailed(t *testing.T) {
	_, url := serve(t, reply(400, `{"code":"malformed"}`),
		reply(200, `{"accepted":0,"rejected":1,"results":[{"index":0,"id":"c","status":"rejected","code":"late"}]}`))
	var reported outcomes
	c := newClient(t, url, client.WithClock(patientClock{}))
	b := newBatcher(t, c, client.BatcherConfig{MaxInFlight: 1, OnOutcome: reported.add})
	mustAdd(t, b, "a", "b")
	err := b.Flush(context.Background())
	var undelivered *client.UndeliveredError
	if !errors.As(err, &undelivered) || undelivered.Events != 2 || client.Code(err) != "malformed" {
		t.Errorf("flush: %v, want 2 events undelivered and why", err)
	}
	mustAdd(t, b, "c")
	if err := b.Close(context.Background()); err != nil {
		t.Errorf("close: %v; the failure was reported already, and a verdict is no failure", err)
	}
	got := reported.list()
	if len(got) != 3 || got[0].Err == nil || got[1].Err == nil || got[2].Err != nil || got[2].Verdict.Code != "late" {
		t.Errorf("outcomes %+v", got)
	}
}

func TestBatcherCloseCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel() // the patience of Close ends while the request is under way
		<-r.Context().Done()
	})
	var reported outcomes
	c := newClient(t, url, client.WithClock(patientClock{}))
	b := newBatcher(t, c, client.BatcherConfig{MaxEvents: 2, MaxInFlight: 1, OnOutcome: reported.add})
	mustAdd(t, b, "a", "b", "c", "d", "e")
	err := b.Close(ctx)
	var undelivered *client.UndeliveredError
	if !errors.Is(err, context.Canceled) || !errors.As(err, &undelivered) || undelivered.Events != 5 {
		t.Errorf("close: %v, want the cancellation and 5 events undelivered", err)
	}
	got := reported.list()
	if len(got) != 5 {
		t.Errorf("%d outcomes, want 5", len(got))
	}
	for _, o := range got {
		if !errors.Is(o.Err, client.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", o.Event.ID, o.Err)
		}
	}
}

func TestBatcherRefusesAConfigThatCannotWork(t *testing.T) {
	c := newClient(t, "http://memory")
	on := func(client.Outcome) {}
	for name, config := range map[string]client.BatcherConfig{
		"no callback":     {},
		"too many events": {MaxEvents: 10_001, OnOutcome: on},
		"too many bytes":  {MaxBytes: client.MaxBody + 1, OnOutcome: on},
		"small queue":     {MaxEvents: 10, QueueSize: 9, OnOutcome: on},
		"nothing sends":   {MaxInFlight: -1, OnOutcome: on},
		"negative time":   {Interval: -1, OnOutcome: on},
	} {
		if _, err := c.NewBatcher(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
