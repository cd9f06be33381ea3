package postgres

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// A replica that lacks the last commits takes over: the tables become what they were at the time of save. The nodes
// keep their memory.
func (g *gated) save() {
	g.Helper()
	statements := "CREATE SCHEMA saved;"
	for _, name := range tables {
		statements += "CREATE TABLE saved." + name + " AS TABLE " + Schema + "." + name + ";"
	}
	g.exec(statements)
}

func (g *gated) failOver() {
	g.Helper()
	statements := ""
	for _, name := range tables {
		from := Schema + "." + name
		statements += "DELETE FROM " + from + "; INSERT INTO " + from + " SELECT * FROM saved." + name + ";"
	}
	g.exec(statements)
}

func (g *gated) exec(statements string) {
	g.Helper()
	if err := pgtest.Exec(g.url, statements); err != nil {
		g.Errorf("%.60s: %v", statements, err)
	}
}

// Given facts whose keys were searched and found, when the commit is cut, the database fails over without the rows that
// were found, and another node writes others in their place, then the next attempt begins from nothing: what was lost
// is accepted, not a duplicate.
func TestARetryForgetsWhatItHadFound(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	l := g.lane()
	g.want(g.says(1, numbered(9)), "accepted")
	g.save()
	g.want(g.says(1, numbered(1)), "accepted")
	w := prepared(t, g.nodes[0], numbered(1), numbered(2))
	l.lookUp([]*work{w})
	if !w.looked || len(w.found) != 1 {
		t.Fatalf("the search found %d rows", len(w.found))
	}
	g.hold(func(_, server net.Conn, _ []byte) bool {
		_ = server.Close()
		g.failOver()
		g.want(g.says(1, numbered(2), numbered(3), numbered(4), numbered(5)), "accepted accepted accepted accepted")
		return true
	})
	<-l.turn
	if err := l.commitGroup([]*work{w}); err != nil {
		t.Fatal(err)
	}
	l.turn <- struct{}{}
	g.want(words(w.verdicts), "accepted duplicate")
	storetest.CheckLedger(t, g.nodes[1], "acme")
}

// Given facts that were searched before a failover, when the first attempt to commit them comes after it, then the
// search is not trusted, however many rows there are by then, and whoever wrote them.
func TestASearchBeforeAFailoverIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]int{"another node wrote since": 1, "this node wrote since": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			l := g.lane()
			g.want(g.says(0, numbered(9)), "accepted")
			g.save()
			g.want(g.says(1, numbered(1)), "accepted")
			w := prepared(t, g.nodes[0], numbered(1), numbered(2))
			l.lookUp([]*work{w})
			g.failOver()
			g.want(g.says(node, numbered(3), numbered(4), numbered(5)), "accepted accepted accepted")
			<-l.turn
			if err := l.commitGroup([]*work{w}); err != nil {
				t.Fatal(err)
			}
			l.turn <- struct{}{}
			g.want(words(w.verdicts), "accepted accepted")
			storetest.CheckLedger(t, g.nodes[1], "acme")
		})
	}
}

// Given what a node remembers of a head, when a failover gives the head's number to other rows, then nothing of it is
// used: neither counters nor the configuration.
func TestAHeadIsMoreThanItsNumber(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	more := func(a meter.Aggregation) func(store.Tx) error {
		return func(tx store.Tx) error { return storetest.PutMeter(tx, storetest.NewMeter("more", a)) }
	}
	fact := func(id, quantity string) usage.Event {
		return storetest.Fact(id, "calls", "c", storetest.Ago(0), quantity)
	}
	g.says(1, fact("first", "1"))
	g.save()
	g.want(g.says(0, fact("lost", "20"), fact("too", "30")), "accepted accepted")
	g.failOver()
	g.want(g.says(1, fact("other", "400"), fact("another", "500")), "accepted accepted")
	g.want(g.says(0, fact("lost", "20"), fact("last", "6000")), "accepted accepted")
	storetest.CheckLedger(t, g.nodes[1], "acme")

	g.exec("DROP SCHEMA saved CASCADE")
	g.save()
	update(t, g.nodes[0], more(meter.Sum))
	g.failOver()
	update(t, g.nodes[1], more(meter.Max))
	e := storetest.Fact("m", "more", "c1", storetest.Ago(0), "3")
	g.want(g.says(0, e), "accepted")
	err := g.nodes[0].View(context.Background(), "acme", func(v store.View) error {
		m, err := store.GetMeter(v, "more")
		if m.Aggregation != meter.Max {
			t.Errorf("the node judges by a meter that was lost: %v", m.Aggregation)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	storetest.CheckLedger(t, g.nodes[0], "acme")
}

// Given a fact that was prepared, when a change of its meter is committed before it, by this node or another, then it
// is judged by the meter as it is now.
func TestAChangeThatWasCommittedFirstDecides(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]int{"by this node": 0, "by another node": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			l := g.lane()
			typed := storetest.NewMeter("typed", meter.Sum)
			typed.EventType = "hit"
			update(t, g.nodes[0], func(tx store.Tx) error { return storetest.PutMeter(tx, typed) })
			hit := storetest.Fact("hit", "", "c", storetest.Ago(0), "1")
			hit.Type = "hit"
			soon := storetest.Fact("soon", "calls", "c", storetest.Ago(-30*time.Minute), "1")
			w := prepared(t, g.nodes[0], hit, soon, storetest.Fact("new", "later", "c", storetest.Ago(0), "1"))
			update(t, g.nodes[node], func(tx store.Tx) error {
				strict, twin := storetest.NewMeter("calls", meter.Sum), storetest.NewMeter("twin", meter.Count)
				strict.Future, twin.EventType = 0, "hit"
				for _, m := range []meter.Meter{strict, twin, storetest.NewMeter("later", meter.Sum)} {
					if err := storetest.PutMeter(tx, m); err != nil {
						return err
					}
				}
				return nil
			})
			<-l.turn
			if err := l.commitGroup([]*work{w}); err != nil {
				t.Fatal(err)
			}
			l.turn <- struct{}{}
			g.want(words(w.verdicts), "accepted rejected accepted")
			err := g.nodes[1].View(context.Background(), "acme", func(v store.View) error {
				row, _, err := v.Event(usage.KeyOfID("hit"))
				if err == nil && len(row.Event.Outcomes) != 2 {
					t.Errorf("the fact fed %d meters, want both of its type", len(row.Event.Outcomes))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			storetest.CheckLedger(t, g.nodes[1], "acme")
		})
	}
}

// Given a row whose state only a newer build can read, when its tenant is asked for, then the answer names the row, its
// kind and the cure at once, without trying again; every other tenant, and the node, are well.
func TestARowOfANewerBuild(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ statement, want string }{
		"kind": {`INSERT INTO tallystick.critical_kinds (tenant_id, kind, version, seq)
			VALUES ('acme', 'subscription', 1, 77)`, "row 77 of this ledger: it has version 1 of kind subscription"},
		"version of a kind": {`UPDATE tallystick.entities SET seq = 78, version = 2 WHERE tenant_id = 'acme' AND ` +
			`kind = 'meter'`,
			"row 78 of this ledger: it has version 2 of kind meter"},
		"tenant": {`UPDATE tallystick.entities SET seq = 79, version = 9 WHERE tenant_id = 'acme' AND kind = 'tenant'`,
			"row 79 of this ledger: it has version 9 of kind tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGated(t)
			if err := storetest.Create(g.nodes[1], "bolt", storetest.NewMeter("calls", meter.Sum)); err != nil {
				t.Fatal(err)
			}
			g.exec(c.statement + "; UPDATE tallystick.heads SET resident_version = resident_version + 1 WHERE " +
				"tenant_id = 'acme'")
			ctx, s := context.Background(), g.nodes[1]
			for what, ask := range map[string]func(tenantID string) error{
				"record": func(id string) error {
					_, err := s.Record(ctx, store.Batch{Tenant: id, Events: []usage.Event{numbered(1)}})
					return err
				},
				"update": func(id string) error {
					return s.Update(ctx, id, func(tx store.Tx) error {
						return storetest.PutMeter(tx,
							storetest.NewMeter("x", meter.Sum))
					})
				},
				"view":   func(id string) error { return s.View(ctx, id, func(store.View) error { return nil }) },
				"access": func(id string) error { _, err := s.Access(ctx, id, "k"); return err },
			} {
				err := ask("acme")
				if !isNewer(err, c.want) {
					t.Errorf("%s: %v, want it to name %s", what, err, c.want)
				}
				if err := ask("bolt"); err != nil && !strings.Contains(err.Error(), "no api key") {
					t.Errorf("%s of another tenant: %v", what, err)
				}
			}
			if err := s.Ready(ctx); err != nil {
				t.Errorf("ready: %v", err)
			}
			ts, err := s.Tenants(ctx, "", 10)
			if err != nil || len(ts) != 2 || ts[0].ID != "acme" || ts[1].ID != "bolt" {
				t.Errorf("tenants: %v, %v", ts, err)
			}
			for name, value := range figures(t, g.figures) {
				if strings.HasPrefix(name, "retries_total") && value != 0 {
					t.Errorf("%s is %v: trying again does not help", name, value)
				}
			}
		})
	}
}
