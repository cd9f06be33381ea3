package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// builds are stores on one database, each of a build that knows other kinds.
func builds(t *testing.T, url string, known ...*entity.Kinds) (out []*Store) {
	t.Helper()
	clock := storetest.NewClock()
	for _, k := range known {
		s := mustOpen(t, Options{URL: url, Now: clock.Now, Kinds: k, MaxConns: few, SkipMigrations: true})
		t.Cleanup(func() { mustClose(t, s) })
		out = append(out, s)
	}
	return out
}

// asRoot connects as the superuser, past all walls.
func asRoot(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(context.Background(), "SET search_path = "+Schema); err != nil {
		t.Fatal(err)
	}
	return conn
}

func red(t *testing.T, s *Store, want ...string) {
	t.Helper()
	err := s.View(context.Background(), "acme", func(v store.View) error {
		got, err := storetest.GadgetsOfColor(v, "red")
		if !slices.Equal(got, want) {
			t.Errorf("red gadgets: %v, want %v", got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Given entities that a build wrote without knowing their kind, when a build that knows it takes over, then it finds
// them by id and by term, at once and page by page in both directions, and an update brings their terms up to date. The
// same goes for a build with a newer declaration of the kind.
func TestATermOfAKindThatTheWriterDidNotKnow(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	bs := builds(t, url, kinds.All(), storetest.Kinds(), storetest.KindsOfNextBuild())
	older, current, next := bs[0], bs[1], bs[2]
	if err := storetest.Create(older, "acme"); err != nil {
		t.Fatal(err)
	}
	const many = 2*pageStale + 3
	var all []string
	update(t, older, func(tx store.Tx) error {
		for i := range many {
			name := fmt.Sprintf("g%04d", i)
			if err := storetest.PutGadget(tx, name, "unknown", "red"); err != nil {
				return err
			}
			all = append(all, name)
		}
		return nil
	})
	update(t, current, func(tx store.Tx) error {
		if err := storetest.PutGadget(tx, "g0001", "changed", "blue"); err != nil {
			return err
		}
		return storetest.PutGadget(tx, "g0001a", "new", "red")
	})
	all[1] = "g0001a"
	red(t, current, all...)
	red(t, next, all...)
	pagesOf(t, next, all)
	update(t, older, func(tx store.Tx) error { return storetest.PutGadget(tx, "g0001a", "again", "red") })
	red(t, next, all...)

	root := asRoot(t, url)
	stale := "SELECT count(*) FROM entities WHERE kind = 'gadget' AND indexed < 2"
	for range many {
		if count(t, root, stale) == 0 {
			break
		}
		update(t, next, func(tx store.Tx) error {
			if got, err := storetest.GadgetsOfColor(tx, "red"); err != nil || !slices.Equal(got, all) {
				t.Errorf("red gadgets of an update: %v, %v", got, err)
			}
			return storetest.ClosePeriod(tx, storetest.Month)
		})
	}
	if n := count(t, root, stale); n != 0 {
		t.Errorf("%d entities are still without the terms of the newest build", n)
	}
	if n := count(t, root, "SELECT count(*) FROM entity_terms WHERE kind = 'gadget' AND value = 'red'"); n != len(all) {
		t.Errorf("%d terms are kept, want %d", n, len(all))
	}
	red(t, next, all...)
	storetest.CheckLedger(t, next, "acme")
}

// pagesOf wants these gadgets to be found by term, in pages of some sizes, up and down.
func pagesOf(t *testing.T, s *Store, want []string) {
	t.Helper()
	term := entity.Term{Index: "color", Value: "red"}
	for _, p := range []store.Page{{Limit: 400}, {Limit: pageStale}, {Limit: 700, Backward: true}} {
		var got []string
		err := s.View(context.Background(), "acme", func(v store.View) error {
			for {
				page, err := v.EntitiesBy("gadget", term, p)
				if err != nil || len(page) == 0 {
					return err
				}
				for i := range page {
					got = append(got, page[i].ID)
				}
				p.After = got[len(got)-1]
			}
		})
		if p.Backward {
			slices.Reverse(got)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("pages of %d, backward %t: %d gadgets, %v, want %d", p.Limit, p.Backward, len(got), err, len(want))
		}
	}
}

// Given a critical kind that only one build knows and that is not resident, when that build writes one, then a running
// node of the other build refuses that tenant from then on, and says why; other tenants go on.
func TestACriticalKindOfANewerBuild(t *testing.T) {
	t.Parallel()
	type pledge struct{ ID string }
	critical := entity.Kind[pledge]{
		Name: "pledge", Version: 3, Critical: true, ID: func(p *pledge) string { return p.ID },
		Encode: func(*pledge) []byte { return []byte("{}") },
		Decode: func(e *entity.Entity) (pledge, error) { return pledge{e.ID}, nil },
	}
	bs := builds(t, migrated(t), kinds.All(), kinds.All().With(critical.Declare()))
	older, newer := bs[0], bs[1]
	for _, id := range []string{"acme", "bolt"} {
		if err := storetest.Create(older, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(s *Store, id string) error {
		_, err := s.Record(context.Background(), store.Batch{Tenant: id, Events: []usage.Event{numbered(1)}})
		return err
	}
	if err := ask(older, "acme"); err != nil {
		t.Fatal(err)
	}
	update(t, newer, func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{State: critical.State(&pledge{"p"})})
		return err
	})
	for range 2 {
		if err := ask(older, "acme"); !isNewer(err, "row 4 of this ledger: it has version 3 of kind pledge") {
			t.Errorf("a fact after it: %v", err)
		}
	}
	if err := ask(older, "bolt"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := ask(newer, "acme"); err != nil {
		t.Errorf("the build that knows it: %v", err)
	}
	storetest.CheckLedger(t, newer, "acme")
}

// Given two nodes, when one commits answers to requests, plans of customers, adjustments, entities of other kinds that
// are not resident and facts of a meter in use, then neither reads or copies resident entities for it; a meter, the
// first fact of a meter and a critical kind that is new do move them.
func TestOnlyResidentEntitiesMoveTheVersion(t *testing.T) {
	t.Parallel()
	ns := builds(t, migrated(t), storetest.Kinds(), storetest.Kinds())
	if err := storetest.Create(ns[0], "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	n := 0
	touch := func() (sets []*residentSet) {
		for _, s := range ns {
			n++
			recorded(t, s, numbered(n))
			set, _ := s.sets.get("acme")
			sets = append(sets, set)
		}
		return sets
	}
	put := func(fn func(tx store.Tx) error) func() { return func() { update(t, ns[0], fn) } }
	adjust := put(func(tx store.Tx) error {
		_, err := storetest.Adjust(tx, "calls", "c1", storetest.Month, "5", "")
		return err
	})
	assign := func(customer string) func() {
		return put(func(tx store.Tx) error { return storetest.Assign(tx, customer, "pro") })
	}
	before := touch()
	for what, do := range []func(){
		put(func(tx store.Tx) error { return storetest.PutMeter(tx, storetest.NewMeter("more", meter.Sum)) }),
		func() { recorded(t, ns[0], storetest.Fact("more", "more", "c", storetest.Ago(0), "1")) },
		put(func(tx store.Tx) error {
			return storetest.PutPlan(tx, quota.Plan{Name: "pro",
				Quotas: []quota.Quota{storetest.Hard("calls", "1000")}})
		}),
		assign("c"), adjust, // the first of critical kinds
	} {
		do()
		after := touch()
		if after[0] == before[0] || after[1] == before[1] || after[0].version != after[1].version {
			t.Errorf("change %d moved nothing", what)
		}
		before = after
	}
	for what, do := range []func(){
		put(func(tx store.Tx) error {
			r := request.Stored{Key: "k", ExpiresAt: tx.Now() + 1}
			_, err := tx.Append(ledger.Keep(&r, "tester"))
			return err
		}),
		assign("c2"), assign(""), adjust,
		put(func(tx store.Tx) error { return storetest.PutGadget(tx, "g", "note", "red") }),
	} {
		do()
		after := touch()
		if !slices.Equal(after, before) {
			t.Errorf("change %d had nodes read or copy the resident entities", what)
		}
		before = after
	}
	storetest.CheckLedger(t, ns[1], "acme")
}

// Given a ledger with many entities that are not resident, when a node loads what it must hold, then it reads none of
// them.
func TestOnlyResidentEntitiesAreLoaded(t *testing.T) {
	t.Parallel()
	s := builds(t, migrated(t), storetest.Kinds())[0]
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	update(t, s, func(tx store.Tx) error {
		for i := range 2000 {
			if err := storetest.PutGadget(tx, fmt.Sprint("g", i), "note", "red"); err != nil {
				return err
			}
		}
		return nil
	})
	read := &statement{name: "read_rows", sql: `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
		FROM pg_stat_xact_user_tables WHERE schemaname = '` + Schema + "' AND relname = 'entities'"}
	err := s.reading(context.Background(), roleServe, "acme", func(ctx context.Context, c *session) error {
		if _, err := s.loadSet(ctx, c, "acme", 1); err != nil {
			return err
		}
		return c.ask(ctx, read, func(in *reader) error {
			if n := in.int8(); n != 2 { // the tenant and its meter
				t.Errorf("%d entities were read, want 2", n)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// Given answers to requests that have expired, when others are kept, then the old ones leave, a few at a time; their
// rows stay in the ledger.
func TestWhatHasExpiredLeaves(t *testing.T) {
	t.Parallel()
	url, clock := migrated(t), storetest.NewClock()
	s := mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few, SkipMigrations: true})
	t.Cleanup(func() { mustClose(t, s) })
	if err := storetest.Create(s, "acme"); err != nil {
		t.Fatal(err)
	}
	keep := func(n int) {
		clock.Advance(time.Second)
		update(t, s, func(tx store.Tx) error {
			r := request.Stored{Key: fmt.Sprint("k", n), ExpiresAt: tx.Now().Add(time.Hour)}
			_, err := tx.Append(ledger.Keep(&r, "tester"))
			return err
		})
	}
	for n := range 20 {
		keep(n)
	}
	clock.Advance(2 * time.Hour)
	root := asRoot(t, url)
	kept := "SELECT count(*) FROM entities WHERE kind = 'request'"
	for n := range 10 {
		keep(100 + n)
		if got, want := count(t, root, kept), 20+(n+1)-forgetRatio*(n+1); got != want {
			t.Errorf("%d answers are kept after %d new ones, want %d", got, n+1, want)
		}
	}
	keep(100) // one that is kept is replaced
	if n := count(t, root, kept); n != 10 {
		t.Errorf("%d answers are kept, want the 10 that have not expired", n)
	}
	if n := count(t, root, "SELECT count(*) FROM changes WHERE kind = 'request'"); n != 31 {
		t.Errorf("the ledger has %d rows of answers, want 31", n)
	}
	storetest.CheckLedger(t, s, "acme")
}

// Given a tenant whose name means something to SQL, when it is named to the walls, then it is that tenant, and nothing
// is executed.
func TestANameIsNoSQL(t *testing.T) {
	t.Parallel()
	s := nodes(t, 1, migrated(t), storetest.NewClock().Now)[0]
	for _, id := range []string{`o'brien`, `back\slash`, `\'`, `';`, `'; DROP TABLE tallystick.heads; --`, `$1`, `$$`,
		`"x"`, "new\nline", `E'`, `ü`} {
		if err := storetest.Create(s, id, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatalf("%q: %v", id, err)
		}
		if _, err := s.Record(context.Background(),
			store.Batch{Tenant: id, Events: []usage.Event{numbered(1)}}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		storetest.CheckLedger(t, s, id)
	}
}

// Given entities of one kind that expire and others that do not, when the serving role deletes all it can, then what
// does not expire stays.
func TestServingDeletesOnlyWhatExpires(t *testing.T) {
	t.Parallel()
	url := twoTenants(t)
	conn, root := as(t, url, roleServe, "one"), asRoot(t, url)
	const stays = "SELECT count(*) FROM entities WHERE expires_at IS NULL"
	before := count(t, root, stays)
	tag, err := conn.Exec(context.Background(), "DELETE FROM entities")
	if err != nil || tag.RowsAffected() != 1 {
		t.Errorf("delete: %v, %v, want the one answer of the tenant to go", tag, err)
	}
	if after := count(t, root, stays); after != before {
		t.Errorf("%d entities that do not expire are left of %d", after, before)
	}
	if n := count(t, root, "SELECT count(*) FROM entities WHERE expires_at IS NOT NULL AND tenant_id = 'two'"); n != 1 {
		t.Errorf("%d answers of the other tenant are left, want 1", n)
	}
}

// Given changes and facts, few or many, of one kind or of several, with terms and without, when they are committed,
// then it takes the same small number of round trips.
func TestRoundTripsDoNotGrowWithWhatIsCommitted(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	s := g.nodes[0]
	put := func(n int) func() {
		return func() {
			update(t, s, func(tx store.Tx) error {
				for i := range n {
					r := request.Stored{Key: fmt.Sprint("k", i), ExpiresAt: tx.Now() + 1}
					if _, err := tx.Append(ledger.Keep(&r, "tester")); err != nil {
						return err
					}
					if err := storetest.PutGadget(tx, fmt.Sprint("g", i), "note", "red"); err != nil {
						return err
					}
					a := quota.Assignment{Customer: fmt.Sprint("c", i), Plans: quota.Schedule{{From: 1, Plan: "pro"}}}
					if _, err := tx.Append(ledger.Change{State: quota.AssignmentKind.State(&a)}); err != nil {
						return err
					}
				}
				return storetest.PutPlan(tx, quota.Plan{Name: "pro",
					Quotas: []quota.Quota{storetest.Hard("calls", "100000")}})
			})
		}
	}
	adjust := func(n int) func() {
		return func() {
			update(t, s, func(tx store.Tx) error {
				for i := range n {
					a := usage.Adjustment{ID: usage.ManualID(tx.Head().Seq + 1), Meter: 1,
						Customer: fmt.Sprint("new", i),
						Month:    storetest.Month, Amount: storetest.Amount("5"), Reason: "x", Actor: "tester"}
					if _, err := tx.Append(ledger.Change{State: usage.AdjustmentKind.State(&a)}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	next := 0
	record := func(n int) func() {
		return func() {
			var events []usage.Event
			for range n {
				next++
				id, customer := fmt.Sprint("f", next), fmt.Sprint("c", next)
				events = append(events, storetest.Fact(id, "calls", customer, storetest.Ago(0), "1"))
			}
			recorded(t, s, events...)
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want int64
	}{
		{"a first update", put(1), 2}, // it reads the resident entities
		{"an update", put(1), 1}, {"a large update", put(40), 1},
		{"an update that adjusts a counter", adjust(1), 2}, {"one that adjusts many", adjust(40), 2},
		{"a fact", record(1), 1}, {"many facts of customers with plans", record(200), 1},
	} {
		before := g.gate.trips.Load()
		c.do()
		if got := g.gate.trips.Load() - before; got != c.want {
			t.Errorf("%s took %d round trips before its commit, want %d", c.what, got, c.want)
		}
	}
	storetest.CheckLedger(t, g.nodes[1], "acme")
}
