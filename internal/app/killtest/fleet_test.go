package killtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/client"
)

// patience bounds every wait for something that must come about; most of it is for a machine that is busy with other
// tests.
const patience = time.Minute

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it did not come about within %s: %s", patience, what)
		}
	}
}

// node is one server of several on a database. After a kill it comes back under another address.
type node struct {
	process *process
	url     string
	// once asks for the tenant and never again; patient goes on asking, as callers do.
	once, patient atomic.Pointer[client.Client]
}

// fleet is several nodes on one database.
type fleet struct {
	b     binary
	nodes []*node
}

// newFleet starts nodes at the same time on a database that none of them has seen.
func newFleet(t *testing.T, nodes int, b binary) *fleet {
	t.Helper()
	f := &fleet{b: b}
	for range nodes {
		f.nodes = append(f.nodes, &node{process: f.b.start(t)})
	}
	for _, n := range f.nodes {
		n.join(t)
	}
	return f
}

// join waits until the node serves, and lets callers know where.
func (n *node) join(t *testing.T) {
	t.Helper()
	n.url = n.process.ready(t)
	n.once.Store(connect(t, n.url, rootKey, client.WithTenant(tenant)))
	patient, err := client.New(n.url, rootKey, client.WithTenant(tenant),
		client.WithRetry(client.RetryPolicy{MaxAttempts: 3, MaxBackoff: 100 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	n.patient.Store(patient)
}

// leave lets go of the connections to a node.
func (n *node) leave() {
	n.once.Load().CloseIdleConnections()
	n.patient.Load().CloseIdleConnections()
}

// kill ends a node at once. Callers find out by themselves.
func (f *fleet) kill(t *testing.T, i int) {
	t.Helper()
	f.nodes[i].process.kill(t)
	f.nodes[i].leave()
}

func (f *fleet) restart(t *testing.T, i int) {
	t.Helper()
	f.nodes[i].process = f.b.start(t)
	f.nodes[i].join(t)
}

// stop ends all nodes in order.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		n.leave()
		n.process.stop(t)
	}
}

// crowd are the senders of a fleet: every stream is sent to every node, at the same time.
type crowd struct {
	f       *fleet
	m       *memory
	senders []*sender
	answers []*atomic.Int64 // by sender
	resent  atomic.Int64    // how often a request was sent again, by the client or to the next node
	cancel  context.CancelFunc
	sending sync.WaitGroup
}

func (f *fleet) crowd(t *testing.T) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{f: f, m: &memory{facts: map[string]answer{}}, cancel: cancel}
	for s := range streams {
		for home := range f.nodes {
			one := &sender{stream: s}
			c.senders = append(c.senders, one)
			answered := &atomic.Int64{}
			c.answers = append(c.answers, answered)
			c.sending.Go(func() { c.roam(ctx, one, home, answered) })
		}
	}
	t.Cleanup(c.stop)
	return c
}

// roam sends to one node, and what that does not answer to the next one, until the context ends.
func (c *crowd) roam(ctx context.Context, s *sender, home int, answered *atomic.Int64) {
	for at := home; ; {
		verdicts, attempts, err := deliver(ctx, c.f.nodes[at].patient.Load(), unitAt(s.stream, s.next))
		var p *client.Problem
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			c.m.heard(verdicts)
			c.m.acks.Add(1)
			c.resent.Add(int64(attempts - 1))
			answered.Add(1)
			s.next++
			at = home
		case errors.As(err, &p) && p.Status != http.StatusServiceUnavailable:
			c.m.objects("node %d answered %v", at, err)
			return
		default:
			c.resent.Add(1)
			at = (at + 1) % len(c.f.nodes)
		}
	}
}

// await waits for that many more answers.
func (c *crowd) await(t *testing.T, answers int64) {
	t.Helper()
	enough := c.m.acks.Load() + answers
	until(t, fmt.Sprint(answers, " more answers"), func() bool {
		return c.m.acks.Load() >= enough || c.m.hasObjected()
	})
	c.m.check(t)
}

// wasHit wants that the faults so far met requests under way.
func (c *crowd) wasHit(t *testing.T) {
	t.Helper()
	if c.resent.Load() == 0 {
		t.Error("no request had to be sent again")
	}
}

// awaitEach waits until every sender has two more answers: the one it was waiting for, and that of a request after it.
func (c *crowd) awaitEach(t *testing.T) {
	t.Helper()
	for _, answered := range c.answers {
		enough := answered.Load() + 2
		until(t, "two more answers to each sender", func() bool {
			return answered.Load() >= enough || c.m.hasObjected()
		})
	}
	c.m.check(t)
}

func (c *crowd) stop() {
	c.cancel()
	c.sending.Wait()
}

// prove stops the crowd and the nodes, and wants the same from every node and from verify: each acknowledged fact once,
// under the number it was acknowledged with, and counted once. others is how many facts other tenants have. Setting up
// leaves rows too.
func (c *crowd) prove(t *testing.T, others int64) {
	t.Helper()
	c.stop()
	c.m.check(t)
	settle(t, c.f.nodes[len(c.f.nodes)-1].once.Load(), c.senders, c.m)
	var counted [][]client.Counter
	for _, n := range c.f.nodes {
		checkRows(t, n.once.Load(), c.m)
		checkCounters(t, n.once.Load(), c.senders)
		page, err := n.once.Load().Counters(context.Background(), client.CounterFilter{})
		if err != nil {
			t.Fatal(err)
		}
		counted = append(counted, page.Items)
	}
	for i := range counted {
		if !slices.Equal(counted[i], counted[0]) {
			t.Errorf("node 0 counts %+v, node %d counts %+v", counted[0], i, counted[i])
		}
	}
	c.f.stop(t)
	facts := int64(len(c.m.facts)) + others
	if rows := c.f.b.verify(t); rows <= uint64(facts) {
		t.Errorf("verify saw %d rows, there are %d facts", rows, facts)
	}
	t.Logf("%d facts in %d answers; %d requests were sent again", len(c.m.facts), c.m.acks.Load(), c.resent.Load())
}
