package killtest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/client"
	"github.com/tallystick/tallystick/internal/pgtest"
)

const databaseCrashes = 3

// Given two nodes under load, when their database crashes and comes back several times, then meanwhile they live, say
// why they are not ready and say when callers are to come again; they go on by themselves; and callers who came again
// lost nothing and were counted once.
func TestDatabaseGoesAwayAndComesBack(t *testing.T) {
	server := pgtest.Private(t)
	database, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, 2, build(t, "--store", database).hasty())
	setUp(t, f.nodes[0].url)
	c := f.crowd(t)
	for range databaseCrashes {
		c.awaitEach(t)
		if err := server.End(); err != nil {
			t.Fatal(err)
		}
		checkAway(t, f)
		if err := server.Begin(); err != nil {
			t.Fatal(err)
		}
		f.awaitReady(t)
	}
	c.awaitEach(t)
	c.wasHit(t)
	c.prove(t, 0)
}

// Given nodes whose database stops answering while every connection stands, when callers have waited as long as they
// must at most, then it is as if it had gone away; and when it answers again, what was under way is neither lost nor
// counted twice.
func TestDatabaseStopsAnswering(t *testing.T) {
	server := pgtest.Private(t)
	database, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	way := newStrait(t, server)
	f := newFleet(t, 2, build(t, "--store", strings.Replace(database, server.Socket(), way.dir, 1)).hasty())
	setUp(t, f.nodes[0].url)
	c := f.crowd(t)
	c.await(t, 30)
	way.block()
	checkAway(t, f)
	way.unblock()
	f.awaitReady(t)
	c.awaitEach(t)
	c.prove(t, 0)
}

func (f *fleet) awaitReady(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		until(t, "the node is ready again", func() bool { return n.once.Load().Ready(context.Background()) == nil })
	}
}

// Given nodes that know a primary and its synchronous standby, when the primary is lost, then the nodes wait; when the
// standby is promoted, they go on with it by themselves, and everything that was ever acknowledged is there, once.
func TestDatabaseFailsOver(t *testing.T) {
	primary := pgtest.Private(t)
	database, err := primary.Create("")
	if err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby(t)
	// Set after the copy was made: the standby will have to do without one.
	if err := primary.Exec("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'",
		"SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, 2, build(t, "--store", database+","+standby.Socket()+"&target_session_attrs=read-write").hasty())
	setUp(t, f.nodes[0].url)
	c := f.crowd(t)
	c.await(t, 60)
	if err := primary.End(); err != nil {
		t.Fatal(err)
	}
	checkAway(t, f)
	if err := standby.Exec("postgres", "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	f.awaitReady(t)
	c.awaitEach(t)
	c.wasHit(t)
	c.prove(t, 0)
}

// checkAway wants of nodes without their database that they live and say so, and that nothing is taken or shown.
func checkAway(t *testing.T, f *fleet) {
	t.Helper()
	ctx := context.Background()
	// A fact that was counted long ago: if it were taken, it would change nothing.
	known := unitAt(0, 0).events()[0]
	var asking sync.WaitGroup
	for i, n := range f.nodes {
		c := n.once.Load()
		if err := c.Health(ctx); err != nil {
			t.Errorf("node %d is not alive: %v", i, err)
		}
		for what, call := range map[string]func() error{
			"readyz": func() error { return c.Ready(ctx) },
			"a fact": func() error { _, err := c.SendEvent(ctx, &known); return err },
			"a new meter": func() error {
				_, err := c.CreateMeter(ctx, client.Meter{Slug: "m", Aggregation: "sum"})
				return err
			},
			"a read": func() error { _, err := c.Counters(ctx, client.CounterFilter{}); return err },
		} {
			asking.Go(func() {
				err := call()
				var p *client.Problem
				if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || p.Code != "unavailable" ||
					p.RetryAfter == 0 || !strings.Contains(p.Detail, "database") {
					t.Errorf("node %d, %s without a database: %v", i, what, err)
				}
			})
		}
	}
	asking.Wait()
}

// Given somebody who holds one tenant's head in the database, when facts of that tenant come, then they are answered to
// come again, and nobody else notices; when it is let go, all is well.
func TestDatabaseHoldsOneTenant(t *testing.T) {
	database, err := pgtest.Shared(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, 1, build(t, "--store", database).hasty())
	url, ctx := f.nodes[0].url, context.Background()
	setUp(t, url)
	held := f.at(0)
	free := connect(t, url, rootKey, client.WithTenant("free"))
	defer free.CloseIdleConnections()
	if _, err := held.CreateTenant(ctx, client.NewTenant{ID: "free"}); err != nil {
		t.Fatal(err)
	}
	if _, err := free.CreateMeter(ctx, client.Meter{Slug: meterName, Aggregation: "sum"}); err != nil {
		t.Fatal(err)
	}
	holder, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx,
		"BEGIN; SELECT FROM tallystick.heads WHERE tenant_id = '"+tenant+"' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	fact := unitAt(0, 0).events()[0]
	_, err = held.SendEvent(ctx, &fact)
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || p.RetryAfter == 0 {
		t.Errorf("a fact of the tenant whose head is held: %v", err)
	}
	if got := says(t, free, fact); got != "accepted" {
		t.Errorf("a fact of another tenant: %s", got)
	}
	if err := held.Ready(ctx); err != nil {
		t.Errorf("the node is not ready: %v", err)
	}
	if err := holder.Close(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "the fact is taken", func() bool {
		_, err := held.SendEvent(ctx, &fact)
		return err == nil
	})
	f.stop(t)
	f.b.verify(t)
}
