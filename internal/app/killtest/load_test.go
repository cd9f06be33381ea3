package killtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

const (
	tenant    = "acme"
	meterName = "calls"
	streams   = 3 // sequences of facts, each with ids of its own
	senders   = 2 // that send each stream, at the same time
	customers = 5
	maxBatch  = 40
)

// now is the time of every fact, so that none is late: the test is about crashes.
var now = time.Now().UTC().Truncate(time.Second)

// unit is what one request carries: some facts of a stream, in order.
type unit struct{ stream, first, n int }

func (u unit) events() []client.Event {
	var out []client.Event
	for i := u.first; i < u.first+u.n; i++ {
		out = append(out, client.Event{ID: id(u.stream, i), Meter: meterName, Customer: customer(i), Time: now,
			Quantity: client.Decimal(strconv.Itoa(quantity(i)))})
	}
	return out
}

func id(stream, i int) string { return fmt.Sprintf("s%d-%d", stream, i) }
func customer(i int) string   { return fmt.Sprint("cus_", i%customers) }
func quantity(i int) int      { return 1 + i%7 }

// unitAt cuts a stream into units, the same way for every sender: singles and batches.
func unitAt(stream, n int) unit {
	first := 0
	for i := range n {
		first += unitSize(stream, i)
	}
	return unit{stream, first, unitSize(stream, n)}
}

func unitSize(stream, n int) int {
	if n%3 == 0 {
		return 1
	}
	return 2 + (n*13+stream)%(maxBatch-2)
}

// memory is what callers were answered, over all lives of the server.
type memory struct {
	acks atomic.Int64 // of this life; of several nodes together there is one life

	mu    sync.Mutex // guards what follows
	life  int
	facts map[string]answer
	wrong []string
}

// answer is what was first answered to a fact.
type answer struct {
	seq      uint64
	life     int
	accepted bool
}

// heard notes the verdicts of one answer. Two senders race for each fact, so a duplicate may be heard before the
// acceptance it rests on, or instead of it when that answer was lost; but never in an earlier life, and there is one
// acceptance at most.
func (m *memory) heard(verdicts []client.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range verdicts {
		before, known := m.facts[v.ID]
		accepted := v.Status == client.Accepted
		switch {
		case !accepted && v.Status != client.Duplicate:
			m.wrong = append(m.wrong, fmt.Sprintf("%s was answered %s (%s)", v.ID, v.Status, v.Detail))
		case !known:
			m.facts[v.ID] = answer{v.Seq, m.life, accepted}
		case before.seq != v.Seq:
			m.wrong = append(m.wrong, fmt.Sprintf("%s was acknowledged as row %d, then as row %d", v.ID, before.seq,
				v.Seq))
		case accepted && (before.accepted || before.life != m.life):
			m.wrong = append(m.wrong, fmt.Sprintf("%s was acknowledged in life %d and accepted in life %d", v.ID,
				before.life, m.life))
		case accepted:
			before.accepted = true
			m.facts[v.ID] = before
		}
	}
}

// objects notes something else that is wrong.
func (m *memory) objects(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

func (m *memory) hasObjected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.wrong) > 0
}

// check ends the test on the first wrong answer.
func (m *memory) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wrong) > 0 {
		t.Fatalf("%d wrong answers; the first: %s", len(m.wrong), m.wrong[0])
	}
}

// sender sends one stream. What it has no answer to it sends again in the next life.
type sender struct {
	stream int
	next   int // unit
}

// send sends until the server is gone. A sender that is behind the other of its stream sends what is known already.
func (s *sender) send(ctx context.Context, c *client.Client, m *memory) {
	for ctx.Err() == nil {
		verdicts, _, err := deliver(ctx, c, unitAt(s.stream, s.next))
		if err != nil {
			return
		}
		m.heard(verdicts)
		m.acks.Add(1)
		s.next++
	}
}

// deliver sends a unit, and says how often that took.
func deliver(ctx context.Context, c *client.Client, u unit) (verdicts []client.Verdict, attempts int, err error) {
	events := u.events()
	if len(events) == 1 {
		a, err := c.SendEvent(ctx, &events[0])
		if err != nil {
			return nil, 0, err
		}
		return []client.Verdict{a.Verdict}, a.Attempts, nil
	}
	a, err := c.SendEvents(ctx, events, client.AllResults())
	if err != nil {
		return nil, 0, err
	}
	return a.Results, a.Attempts, nil
}

// live runs the server under load until it has answered enough, then kills it while requests are under way.
func live(t *testing.T, b binary, all []*sender, m *memory, random *rand.Rand) {
	t.Helper()
	p := b.start(t)
	if random.IntN(8) == 0 {
		// Now and then it does not even get to serve: a kill during recovery.
		<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond)
		p.kill(t)
		return
	}
	url := p.ready(t)
	m.acks.Store(0)
	m.life++
	enough, after := int64(1+random.IntN(100)), time.Duration(random.IntN(5000))*time.Microsecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sending sync.WaitGroup
	for _, s := range all {
		c := connect(t, url, rootKey, client.WithTenant(tenant))
		sending.Go(func() {
			defer c.CloseIdleConnections()
			s.send(ctx, c, m)
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for m.acks.Load() < enough {
		<-tick.C
	}
	<-time.After(after)
	p.kill(t)
	sending.Wait()
}
