package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/store"
)

const (
	// watchPause is how long the ledgers are left alone after a look at all their heads. Commits come by the thousand a
	// second, and nobody reads that fast.
	watchPause = 20 * time.Millisecond
	// watchShare bounds what looking costs where there are very many tenants: after a look it rests this many times as
	// long as the look took.
	watchShare = 4
	// watchPage is how many heads are asked for at once.
	watchPage = 100_000
)

// tails are the open streams of rows, and how far the ledgers have come that they are of. While any is open, one
// goroutine asks the store, however many there are: when this node has committed something, and now and then for what
// other nodes commit.
type tails struct {
	store   store.Followers
	options StreamOptions

	mu      sync.Mutex // guards all below
	open    int
	dropped int64
	refused int64
	ledgers map[string]*watched
	stop    func() // ends the goroutine that asks and waits for it; nil: there is none
}

// watched is a ledger that streams are of. tails.mu guards it.
type watched struct {
	streams int
	head    uint64        // as it was last seen
	moved   chan struct{} // closed when the head moves
}

// StreamCounts is how many streams of rows there are, and what became of others.
type StreamCounts struct {
	Open    int64
	Dropped int64 // because their callers read too slowly
	Refused int64 // for want of a place
}

// Streams counts.
func (s *Server) Streams() StreamCounts {
	t := &s.tails
	t.mu.Lock()
	defer t.mu.Unlock()
	return StreamCounts{Open: int64(t.open), Dropped: t.dropped, Refused: t.refused}
}

// enter gives a stream a place, or says why there is none. leave must follow.
func (t *tails) enter(tenantID string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.ledgers[tenantID]
	switch {
	case w != nil && w.streams >= t.options.MaxPerTenant:
		t.refused++
		return problem.New(problem.RateLimited, "%d streams of this tenant are open, which is all that it may have "+
			"(http.max_streams_per_tenant): close one, or try again later", w.streams).Retry(t.options.Retry)
	case t.open >= t.options.Max:
		t.refused++
		return problem.New(problem.Busy, "%d streams are open, which is all that this server has places for "+
			"(http.max_streams): try again later", t.open).Retry(t.options.Retry)
	}
	if w == nil {
		w = &watched{moved: make(chan struct{})}
		if t.ledgers == nil {
			t.ledgers = map[string]*watched{}
		}
		t.ledgers[tenantID] = w
	}
	w.streams++
	if t.open++; t.open == 1 {
		t.begin()
	}
	return nil
}

func (t *tails) leave(tenantID string, dropped bool) {
	t.mu.Lock()
	if dropped {
		t.dropped++
	}
	if w := t.ledgers[tenantID]; w.streams == 1 {
		delete(t.ledgers, tenantID)
	} else {
		w.streams--
	}
	var stop func()
	if t.open--; t.open == 0 {
		stop, t.stop = t.stop, nil
	}
	t.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// begin starts asking. mu is held.
func (t *tails) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.stop = func() {
		cancel()
		<-ended
	}
	go func() {
		defer close(ended)
		t.watch(ctx)
	}()
}

// beyond returns nil when the ledger has grown beyond a row, else what is closed when it grows.
func (t *tails) beyond(tenantID string, seq uint64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.ledgers[tenantID]
	if w.head > seq {
		return nil
	}
	return w.moved
}

// watch asks until the context ends. What is committed during a look is found by the next: the bell is taken before.
func (t *tails) watch(ctx context.Context) {
	for ctx.Err() == nil {
		woken := t.store.Woken()
		began := time.Now()
		// A store that cannot be asked now is asked again; streams read it themselves and find out more.
		_ = t.look(ctx)
		if !rest(ctx, max(watchPause, watchShare*time.Since(began))) {
			return
		}
		timer := time.NewTimer(t.options.Poll)
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// look asks for all heads and wakes the streams of ledgers that have grown.
func (t *tails) look(ctx context.Context) error {
	for after := ""; ; {
		page, err := t.store.Heads(ctx, after, watchPage)
		if err != nil || len(page) == 0 {
			return err
		}
		t.mu.Lock()
		for _, g := range page {
			if w := t.ledgers[g.Tenant]; w != nil && g.Seq > w.head {
				w.head = g.Seq
				close(w.moved)
				w.moved = make(chan struct{})
			}
		}
		t.mu.Unlock()
		after = page[len(page)-1].Tenant
	}
}
