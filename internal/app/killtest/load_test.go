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
		out = append(out, client.Event{ID: id(u.stream, i), Meter: meterName, Customer: customer(i), Time: now, Quantity: client.Decimal(strconv.Itoa(quantity(i)))})
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

// memory is what callers were told, over all lives of the server.
type memory struct {
	mu    sync.Mutex        // guards what follows
	seqs  map[string]uint64 // of acknowledged facts, accepted or duplicate
	wrong []string
	acks  atomic.Int64 // of this life
	fresh int          // facts acknowledged as accepted
}

// heard notes the verdicts of one answer.
func (m *memory) heard(verdicts []client.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range verdicts {
		if v.Status != client.Accepted && v.Status != client.Duplicate {
			m.wrong = append(m.wrong, fmt.Sprintf("%s was answered %s (%s)", v.ID, v.Status, v.Detail))
			continue
		}
		before, known := m.seqs[v.ID]
		if known && (before != v.Seq || v.Status == client.Accepted) {
			m.wrong = append(m.wrong, fmt.Sprintf("%s was acknowledged as row %d, then answered %s as row %d", v.ID, before, v.Status, v.Seq))
		}
		// Two senders race: a duplicate may be heard before the acceptance it rests on, or instead of it.
		if v.Status == client.Accepted {
			m.fresh++
		}
		m.seqs[v.ID] = v.Seq
	}
}

// sender sends one stream. What it has no answer to it sends again in the next life.
type sender struct {
	stream int
	next   int // unit
}

// send sends until the server is gone. A sender that is behind the other of its stream sends what is known already.
func (s *sender) send(c *client.Client, m *memory, ctx context.Context) {
	for ctx.Err() == nil {
		verdicts, err := deliver(ctx, c, unitAt(s.stream, s.next))
		if err != nil {
			return
		}
		m.heard(verdicts)
		m.acks.Add(1)
		s.next++
	}
}

func deliver(ctx context.Context, c *client.Client, u unit) ([]client.Verdict, error) {
	events := u.events()
	if len(events) == 1 {
		a, err := c.SendEvent(ctx, &events[0])
		if err != nil {
			return nil, err
		}
		return []client.Verdict{a.Verdict}, nil
	}
	a, err := c.SendEvents(ctx, events, client.AllResults())
	if err != nil {
		return nil, err
	}
	return a.Results, nil
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
	enough, after := int64(1+random.IntN(60)), time.Duration(random.IntN(5000))*time.Microsecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sending sync.WaitGroup
	for _, s := range all {
		c := connect(t, url, rootKey, client.WithTenant(tenant))
		sending.Go(func() {
			defer c.CloseIdleConnections()
			s.send(c, m, ctx)
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
