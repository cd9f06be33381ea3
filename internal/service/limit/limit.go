// Package limit bounds how much callers may send in a second: token buckets by name, in memory, and shared between
// nodes when something to share them is given.
//
// A limit is a courtesy among callers, never an authority: it is not in any ledger, a restart forgets it, and when what
// is shared cannot be reached each node goes on by itself.
//
// The buckets are our own: those of golang.org/x/time/rate let nothing larger than themselves pass, know one dimension,
// and cannot be asked together, all or none.
package limit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// By is what a bucket belongs to.
type By string

// The owners of buckets.
const (
	APIKey         By = "api_key"
	Tenant         By = "tenant"
	IdempotencyKey By = "idempotency_key" // a tenant's requests that have one
)

// Bucket names what is limited and says how fast it fills.
type Bucket struct {
	By   By
	Name string
	Rate Rate
}

// Standing is what is left after a request, of the dimension that is nearest to its end. Zero: nothing is limited.
type Standing struct {
	Limit     int64 // in a second
	Remaining int64
	Reset     time.Duration // until the bucket is full again
	share     float64
}

// Outcome is what became of a request to take.
type Outcome struct {
	Standing Standing
	// Wait is until there would be enough, and By and Of are what it is waited for; nothing was taken. Zero: all was
	// taken.
	Wait time.Duration
	By   By
	Of   Dimension
}

// OK reports whether the cost was taken.
func (o *Outcome) OK() bool { return o.Wait == 0 }

// Shared holds buckets for several nodes.
type Shared interface {
	// Take is like the method of a Limiter. An error means that nothing is known: the node's own buckets decide.
	Take(ctx context.Context, c Cost, from []Bucket) (Outcome, error)
}

// Options configure a Limiter.
type Options struct {
	// MaxNames bounds the buckets in memory; the one longest unused goes first, and begins anew full. Default 100,000.
	MaxNames int
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Shared is asked first. Default: nothing is shared.
	Shared Shared
	// Alone is called when Shared did not answer. Default: nothing is called.
	Alone func(error)
	// Refused gets every refusal. Default: nothing is called.
	Refused func(By, Dimension)
}

const defaultNames = 100_000

// Limiter keeps the buckets. It is safe for concurrent use.
type Limiter struct {
	o Options

	mu    sync.Mutex // guards the two below
	named map[name]*list.Element
	used  *list.List // of *entry, the latest used first
}

type name struct {
	by   By
	name string
}

type entry struct {
	name
	rate Rate
	level
}

// New makes a Limiter.
func New(o Options) *Limiter {
	if o.MaxNames == 0 {
		o.MaxNames = defaultNames
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Limiter{o: o, named: map[name]*list.Element{}, used: list.New()}
}

// Take takes the cost from every bucket if there is enough in all of them, else from none, and says how long to wait. A
// cost of nothing asks how things stand.
func (l *Limiter) Take(ctx context.Context, c Cost, from ...Bucket) Outcome {
	o, ok := l.shared(ctx, c, from)
	if !ok {
		o = l.alone(c, from)
	}
	if !o.OK() && l.o.Refused != nil {
		l.o.Refused(o.By, o.Of)
	}
	return o
}

func (l *Limiter) shared(ctx context.Context, c Cost, from []Bucket) (o Outcome, ok bool) {
	if l.o.Shared == nil {
		return o, false
	}
	o, err := l.o.Shared.Take(ctx, c, from)
	if err != nil && l.o.Alone != nil {
		l.o.Alone(err)
	}
	return o, err == nil
}

func (l *Limiter) alone(c Cost, from []Bucket) (o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, costs := l.o.Now(), c.all()
	for i := range from {
		wait, of := l.find(now, &from[i]).lacks(from[i].Rate.all(), costs)
		if wait > o.Wait {
			o.Wait, o.By, o.Of = wait, from[i].By, of
		}
	}
	for i := range from {
		rates, level := from[i].Rate.all(), l.find(now, &from[i])
		if o.OK() {
			level.take(rates, costs)
		}
		level.show(rates, &o.Standing)
	}
	return o
}

// find returns what is in the bucket now. A rate that was changed begins anew.
func (l *Limiter) find(now time.Time, b *Bucket) *level {
	n, rates := name{b.By, b.Name}, b.Rate.all()
	if at, ok := l.named[n]; ok {
		l.used.MoveToFront(at)
		e, _ := at.Value.(*entry)
		if e.rate != b.Rate {
			e.rate, e.level = b.Rate, full(now, rates)
		}
		e.fill(now, rates)
		return &e.level
	}
	if l.used.Len() >= l.o.MaxNames {
		oldest, _ := l.used.Remove(l.used.Back()).(*entry)
		delete(l.named, oldest.name)
	}
	e := &entry{name: n, rate: b.Rate, level: full(now, rates)}
	l.named[n] = l.used.PushFront(e)
	return &e.level
}
