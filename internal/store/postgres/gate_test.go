package postgres

import (
	"context"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// holder is called with a commit that is on its way to the server, and has it in hand: it may send it on. It returns
// whether the connection ends there.
type holder func(client, server net.Conn, commit []byte) (cut bool)

// gated are nodes on one database. What the first one commits passes a gate, where a test can hold it.
type gated struct {
	*testing.T
	url     string
	gate    *cutter
	nodes   []*Store
	figures *prometheus.Registry // of the second node
}

func newGated(t *testing.T) *gated {
	t.Helper()
	server := pgtest.Shared(t)
	g := &gated{T: t, url: migrated(t), gate: newCutter(t, filepath.Join(server.Socket(), ".s.PGSQL.5432")),
		figures: prometheus.NewRegistry()}
	g.gate.deaf = true
	clock := storetest.NewClock()
	open := func(o Options) {
		o.Now, o.MaxConns, o.SkipMigrations = clock.Now, few, true
		s := mustOpen(t, o)
		t.Cleanup(func() { mustClose(t, s) })
		g.nodes = append(g.nodes, s)
	}
	open(Options{URL: strings.Replace(g.url, server.Socket(), g.gate.dir, 1)})
	open(Options{URL: g.url, Metrics: g.figures})
	if err := storetest.Create(g.nodes[1], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	return g
}

// hold has fn called at the next commit of the first node.
func (g *gated) hold(fn holder) { g.gate.held.Store(&fn) }

// lane enters the first node's lane.
func (g *gated) lane() *lane {
	g.Helper()
	l, err := g.nodes[0].enter("acme")
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(l.leave)
	return l
}

// says records facts on a node and returns the verdicts' words.
func (g *gated) says(node int, events ...usage.Event) string {
	g.Helper()
	vs, err := g.nodes[node].Record(context.Background(), store.Batch{Tenant: "acme", Events: events})
	if err != nil {
		g.Errorf("record: %v", err)
	}
	return words(vs)
}

func words(vs []usage.Verdict) string {
	var out []string
	for _, v := range vs {
		out = append(out, v.Status.String())
	}
	return strings.Join(out, " ")
}

func (g *gated) want(got, want string) {
	g.Helper()
	if got != want {
		g.Errorf("answered %q, want %q", got, want)
	}
}

// blocked waits until a transaction of the database waits for another one.
func (g *gated) blocked() { blocked(g.T, g.url) }

func blocked(t *testing.T, url string) {
	t.Helper()
	wait(t, url, "nobody came to wait", "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "+
		"AND wait_event_type = 'Lock'")
}

// wait asks until there is an answer.
func wait(t *testing.T, url, otherwise, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Errorf("connect: %v", err)
		return
	}
	defer func() { _ = c.Close(ctx) }()
	for {
		r := c.ExecParams(ctx, question, nil, nil, nil, nil).Read()
		if r.Err != nil {
			t.Errorf("%s: %v", otherwise, r.Err)
			return
		}
		if len(r.Rows) > 0 {
			return
		}
		runtime.Gosched()
	}
}

// Given a commit that was cut before it reached the server, when another node commits in its place before anybody
// looks, then the first finds that the section there is not its own, and its fact is neither lost nor answered before
// it is in the ledger.
func TestACutCommitIsNotTakenForAnothersInItsPlace(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.hold(func(_, server net.Conn, _ []byte) bool {
		_ = server.Close()
		g.want(g.says(1, numbered(7)), "accepted")
		return true
	})
	g.want(g.says(0, numbered(1)), "accepted")
	g.want(g.says(1, numbered(1), numbered(7)), "duplicate duplicate")
	storetest.CheckLedger(t, g.nodes[1], "acme")
}

// Given a commit whose connection was lost while it is still under way, when it is looked for, then the look waits for
// its end: the change of an update happens once, and the fact of a batch is answered as what it is.
func TestALostCommitIsWaitedFor(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.says(1, numbered(1))
	done := make(chan struct{})
	late := func(client, server net.Conn, commit []byte) bool {
		_ = client.Close()
		g.blocked()
		_, _ = server.Write(commit)
		<-done
		return true
	}
	g.hold(late)
	runs := 0
	err := g.nodes[0].Update(context.Background(), "acme", func(tx store.Tx) error {
		runs++
		_, err := storetest.Adjust(tx, "calls", "c1", storetest.Month, "5", "")
		return err
	})
	if err != nil || runs != 1 {
		t.Errorf("the update ran %d times: %v", runs, err)
	}
	g.hold(late)
	g.want(g.says(0, numbered(2)), "accepted")
	close(done)
	storetest.CheckLedger(t, g.nodes[1], "acme")
}

// Given a transaction that holds the head, when another node writes, then it waits for the head before it reads
// anything: it sees what was committed, runs once, and no transaction of it has to be repeated.
func TestTheHeadIsHeldBetweenNodes(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.says(1, numbered(1))
	other, runs := make(chan string, 1), 0
	pass := func(second func() string) holder {
		return func(_, server net.Conn, commit []byte) bool {
			go func() { other <- second() }()
			g.blocked()
			_, err := server.Write(commit)
			return err != nil
		}
	}
	g.hold(pass(func() string { return g.says(1, numbered(2), numbered(3)) }))
	g.want(g.says(0, numbered(2)), "accepted")
	g.want(<-other, "duplicate accepted")
	var seen uint64
	g.hold(pass(func() string {
		err := g.nodes[1].Update(context.Background(), "acme", func(tx store.Tx) error {
			runs++
			seen = tx.Head().Seq
			return storetest.PutMeter(tx, storetest.NewMeter("more", meter.Sum))
		})
		if err != nil {
			return err.Error()
		}
		return "updated"
	}))
	g.want(g.says(0, numbered(4)), "accepted")
	g.want(<-other, "updated")
	if runs != 1 || seen != 6 {
		t.Errorf("the update ran %d times and saw row %d, want once and row 6", runs, seen)
	}
	for name, value := range figures(t, g.figures) {
		if strings.HasPrefix(name, "retries_total") && value != 0 {
			t.Errorf("%s is %v", name, value)
		}
	}
	storetest.CheckLedger(t, g.nodes[1], "acme")
}

// Given three nodes on one database and a network that cuts connections around their commits, when all are thrown the
// same facts, then each fact that was acknowledged is counted, once.
func TestThreeNodesAndCutConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	p := newCutter(t, filepath.Join(server.Socket(), ".s.PGSQL.5432"))
	ns := nodes(t, 3, strings.Replace(migrated(t), server.Socket(), p.dir, 1), storetest.NewClock().Now)
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	p.armed.Store(true)
	const facts = 1500
	y := newTally()
	y.race(t, ns, facts, 25)
	p.armed.Store(false)
	if p.before.Load() == 0 || p.after.Load() == 0 {
		t.Errorf("%d connections were cut before the commit and %d after it", p.before.Load(), p.after.Load())
	}
	y.check(t, ns[2], facts)
}
