// Package fairness shares a server between tenants that send much and tenants that send little.
//
// While a tenant sends large batches and another sends little, the large ones are taken one at a time, the network is
// looked at before each, and after each there is a rest twice as long as it took. A tenant that floods the server from
// many connections would else keep all processors and the disk busy, and every step on the way of another's single
// event, from the socket to the answer, would wait behind its batches. When nobody else is there, or all send much,
// there is no bound.
//
// It owns the order of large batches of one tenant, never that of facts: batches that wait at the same time have no
// order yet.
package fairness

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/yield"
)

const (
	// SmallBatch is the most facts of a call that is little.
	SmallBatch = 100
	// maxWaiting bounds the facts of a tenant that wait for a turn.
	maxWaiting = 200_000
	// calmFor is how long a tenant that sent little is thought to go on.
	calmFor = time.Second
	// calmStep is how exactly that is known: to note every call would cost more than it is worth.
	calmStep = 100 * time.Millisecond
	// restShare is how many times as long as a batch took the rest after it is.
	restShare = 2
	// longestRest bounds it: a batch that took very long was held up by something that no rest helps, such as the disk.
	longestRest = 100 * time.Millisecond
)

// Turns are those of one server. The zero value is ready; it is safe for concurrent use.
type Turns struct {
	// Waited, if set, gets how long a batch waited for its turn.
	Waited func(time.Duration)

	// little are two tenants that send little: one of them is not the one that asks.
	little [2]atomic.Pointer[call]

	mu   sync.Mutex // guards what follows
	much map[string]*line
}

type call struct {
	tenant string
	at     time.Time
}

// line is where large batches of one tenant wait. It is there while anybody uses it.
type line struct {
	turn  chan struct{} // holds a token while a batch has its turn, and in the rest after it
	users int           // that wait, have the turn, or rest
	facts int           // that wait
}

// Enter waits for the turn of a batch where there are turns. What it returns ends the turn and must be called. Errors:
// Busy (too many wait), and that of a context that ends.
func (t *Turns) Enter(ctx context.Context, tenant string, facts int) (leave func(), err error) {
	now := time.Now()
	if facts <= SmallBatch {
		t.note(tenant, now)
		return stay, nil
	}
	if !t.beside(tenant, now) {
		return stay, nil
	}
	l, err := t.join(tenant, facts)
	if err != nil {
		return nil, err
	}
	if err := t.wait(ctx, l, facts); err != nil {
		t.quit(tenant, l)
		return nil, err
	}
	began := time.Now()
	if t.Waited != nil {
		t.Waited(began.Sub(now))
	}
	yield.ToNetwork()
	return func() {
		time.AfterFunc(min(restShare*time.Since(began), longestRest), func() {
			<-l.turn
			t.quit(tenant, l)
		})
	}, nil
}

// stay ends a turn that was none.
func stay() {}

// note remembers a call of few facts.
func (t *Turns) note(tenant string, now time.Time) {
	for i := range t.little {
		last := t.little[i].Load()
		switch {
		case last == nil, now.Sub(last.at) > calmFor, last.tenant == tenant && now.Sub(last.at) > calmStep:
			t.little[i].Store(&call{tenant, now})
			return
		case last.tenant == tenant:
			return
		}
	}
}

// beside reports whether another tenant sends little.
func (t *Turns) beside(tenant string, now time.Time) bool {
	for i := range t.little {
		if last := t.little[i].Load(); last != nil && last.tenant != tenant && now.Sub(last.at) <= calmFor {
			return true
		}
	}
	return false
}

// join takes a place in the tenant's line. A batch that nobody waits before is never too many, whatever its size: what
// is too large is for the store to say.
func (t *Turns) join(tenant string, facts int) (*line, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.much[tenant]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		if t.much == nil {
			t.much = map[string]*line{}
		}
		t.much[tenant] = l
	}
	if l.facts > 0 && l.facts+facts > maxWaiting {
		return nil, problem.New(problem.Busy, "too many events wait for their turn: try again").Retry(time.Second)
	}
	l.users++
	l.facts += facts
	return l, nil
}

// wait returns when the batch has its turn, or its context has ended.
func (t *Turns) wait(ctx context.Context, l *line, facts int) error {
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		l.facts -= facts
	}()
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quit gives the place back; the last one takes the line down.
func (t *Turns) quit(tenant string, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.much, tenant)
	}
}
