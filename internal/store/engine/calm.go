package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tallystick/tallystick/internal/store/engine/yield"
)

// While a tenant sends large batches and another sends little, the large ones are taken one at a time, the network is looked at before
// each, and after each there is a rest as long as it took. A tenant that floods the server from many connections would else keep all
// processors and the disk busy, and every step on the way of another's single event, from the socket to the answer, would wait behind
// its batches. When nobody else is there, or all send much, there is no bound.

const (
	// smallBatch is the most facts of a call that is little.
	smallBatch = 100
	// calmFor is how long a tenant that sent little is thought to go on.
	calmFor = time.Second
	// calmStep is how exactly that is known: to note every call would cost more than it is worth.
	calmStep = 100 * time.Millisecond
	// longestRest is more than the largest batch needs. What took longer than that took it for other reasons, such as the disk's.
	longestRest = 100 * time.Millisecond
)

// calm remembers two tenants that send little: one of them is not the one that asks.
type calm [2]atomic.Pointer[calmCall]

type calmCall struct {
	book *book
	at   time.Time
}

// note remembers a call of few facts.
func (c *calm) note(b *book, now time.Time) {
	for i := range c {
		last := c[i].Load()
		switch {
		case last == nil, now.Sub(last.at) > calmFor, last.book == b && now.Sub(last.at) > calmStep:
			c[i].Store(&calmCall{b, now})
			return
		case last.book == b:
			return
		}
	}
}

// beside reports whether another tenant sends little.
func (c *calm) beside(b *book, now time.Time) bool {
	for i := range c {
		if last := c[i].Load(); last != nil && last.book != b && now.Sub(last.at) <= calmFor {
			return true
		}
	}
	return false
}

// enter waits for the turn of a large batch where there are turns. What it returns ends the turn.
func (c *calm) enter(ctx context.Context, b *book, facts int) (leave func(), err error) {
	now := time.Now()
	if facts <= smallBatch {
		c.note(b, now)
		return func() {}, nil
	}
	if !c.beside(b, now) {
		return func() {}, nil
	}
	// Who waits for a turn is not in the queue yet, and bounded like it.
	if b.largeWaiting.Add(int64(facts)) > maxQueuedTenantFacts {
		b.largeWaiting.Add(-int64(facts))
		return nil, errBusy()
	}
	defer b.largeWaiting.Add(-int64(facts))
	select {
	case b.largeTurn <- struct{}{}:
		began := time.Now()
		yield.ToNetwork()
		return func() { b.leaveTurn(time.Since(began)) }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// leaveTurn lets the next large batch have its turn, after a rest.
func (b *book) leaveTurn(took time.Duration) {
	time.AfterFunc(min(took, longestRest), func() { <-b.largeTurn })
}
