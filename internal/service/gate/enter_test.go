package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/limit"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
)

const page = "https://app.example.com"

// limited has a gate with these rates, and acme allows one page.
func limited(t *testing.T, of, key limit.Rate) (*world, *gate.Gate, *limit.Limiter) {
	t.Helper()
	w := newWorld(t)
	w.meter()
	w.allow("acme", page)
	l := limit.New(limit.Options{Now: w.clock})
	return w, gate.New(w.store, gate.Options{RootKey: rootKey, Now: w.clock, Limiter: l, TenantRate: of, KeyRate: key}),
		l
}

func (w *world) key(k tenant.APIKey) (id, token string) {
	w.Helper()
	made, token, err := w.registry.CreateKey(w.Context(), "k", "acme", k)
	if err != nil {
		w.Fatal(err)
	}
	return made.ID, token
}

// left is what is in a bucket, which nobody takes from.
func left(l *limit.Limiter, b limit.Bucket) int64 {
	o := l.Take(context.Background(), limit.Cost{}, b)
	return o.Standing.Remaining
}

// Who lacks several things learns the first, in the one order, and no bucket is touched before its turn.
func TestOneOrder(t *testing.T) {
	w, g, l := limited(t, limit.Rate{Requests: 1}, limit.Rate{})
	_, scoped := w.key(tenant.APIKey{Scopes: tenant.Read})
	bucket := limit.Bucket{By: limit.Tenant, Name: "acme", Rate: limit.Rate{Requests: 1}}
	for _, spent := range []bool{false, true} {
		for _, c := range []struct {
			token, origin string
			want          problem.Code
		}{
			{"bad", "https://evil.test", problem.Unauthorized}, {"bad", page, problem.Unauthorized},
			{"", "", problem.Unauthorized},
			{scoped, "https://evil.test", problem.Forbidden}, {scoped, page, problem.Forbidden},
			{scoped, "", problem.Forbidden},
			{w.tokens["acme"], "https://evil.test", problem.Forbidden}, {w.tokens["acme"], "null", problem.Forbidden},
		} {
			v, err := g.Enter(t.Context(), &gate.Request{Token: c.token, Origin: c.origin, Right: toIngest})
			wantCode(t, err, c.want)
			if v.Origin != "" || v.Standing != (limit.Standing{}) {
				t.Errorf("%+v: %+v", c, v)
			}
			if want := map[bool]int64{false: 1, true: 0}[spent]; left(l, bucket) != want {
				t.Fatalf("%+v took of the rate", c)
			}
		}
		v, err := g.Enter(t.Context(), &gate.Request{Token: w.tokens["acme"], Origin: page, Right: toIngest})
		if want := map[bool]problem.Code{true: problem.RateLimited}[spent]; problem.CodeOf(err) != want ||
			v.Origin != page || v.Standing.Limit != 1 {
			t.Errorf("%v, %+v", err, v)
		}
	}
}

func TestRights(t *testing.T) {
	w := newWorld(t)
	_, ingest := w.key(tenant.APIKey{Scopes: tenant.Ingest})
	g := w.gate(rootKey)
	type right = gate.Right
	for _, c := range []struct {
		token, named string
		right        right
		want         problem.Code
	}{
		{"", "", right{Who: gate.Anyone}, ""},
		{ingest, "", toIngest, ""},
		{ingest, "acme", toIngest, ""},
		{ingest, "", right{Who: gate.OfTenant, Scope: tenant.Read}, problem.Forbidden},
		{w.tokens["acme"], "", right{Who: gate.OfTenant, Scope: tenant.Audit}, ""},
		{rootKey, "acme", toIngest, ""},
		{rootKey, "", toIngest, problem.Malformed},
		{rootKey, "", right{Who: gate.OfOperator}, ""},
		{w.tokens["acme"], "", right{Who: gate.OfOperator}, problem.Forbidden},
		{rootKey, "", right{Who: gate.OfNamed, Named: "acme"}, ""},
		{w.tokens["acme"], "", right{Who: gate.OfNamed, Named: "acme"}, ""},
		{w.tokens["beta"], "", right{Who: gate.OfNamed, Named: "acme"}, problem.NotFound},
		{w.tokens["beta"], "", right{Who: gate.OfNamed, Named: "nobody"}, problem.NotFound},
		{ingest, "", right{Who: gate.OfNamed, Named: "acme"}, problem.Forbidden},
		{ingest, "", right{Who: gate.OfNamed, Named: "beta"}, problem.Forbidden},
	} {
		_, err := g.Enter(t.Context(), &gate.Request{Token: c.token, Tenant: c.named, Right: c.right})
		if problem.CodeOf(err) != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The operator's pages are those of the tenant that they name.
func TestPagesOfTheOperator(t *testing.T) {
	w := newWorld(t)
	w.allow("acme", page)
	g := w.gate(rootKey)
	for named, want := range map[string]problem.Code{"": problem.Forbidden, "acme": "", "beta": problem.Forbidden} {
		_, err := g.Enter(t.Context(), &gate.Request{Token: rootKey, Tenant: named, Origin: page,
			Right: gate.Right{Who: gate.OfOperator}})
		if problem.CodeOf(err) != want {
			t.Errorf("for %q: %v", named, err)
		}
	}
}

func (w *world) allow(id string, origins ...string) {
	w.Helper()
	if _, err := w.registry.UpdateTenant(w.Context(), "operator", id,
		registry.TenantPatch{AllowedOrigins: &origins}); err != nil {
		w.Fatal(err)
	}
}

// A key has its own limit or the common one; beside it the tenant's applies to all its keys together, and to no other
// tenant's.
func TestWhoseLimitApplies(t *testing.T) {
	w, g, _ := limited(t, limit.Rate{Requests: 5}, limit.Rate{Requests: 2})
	_, own := w.key(tenant.APIKey{Scopes: tenant.Ingest,
		RateLimit: tenant.RateLimit{RequestsPerSecond: 4, EventsPerSecond: 1}})
	send := func(token string, times int) (passed int, last error) {
		for range times {
			if _, last = g.Enter(t.Context(), &gate.Request{Token: token, Right: toIngest}); last == nil {
				passed++
			}
		}
		return passed, last
	}
	if n, err := send(own, 6); n != 4 || !strings.Contains(fmt.Sprint(err), "this API key may send 4 a second") {
		t.Errorf("with its own limit %d passed, then %v", n, err)
	}
	if n, err := send(w.tokens["acme"], 3); n != 1 ||
		!strings.Contains(fmt.Sprint(err), "this tenant may send 5 a second") {
		t.Errorf("one was left of the tenant's: %d passed, then %v", n, err)
	}
	if n, err := send(w.tokens["beta"], 3); n != 2 ||
		!strings.Contains(fmt.Sprint(err), "this API key may send 2 a second") {
		t.Errorf("with the common limit %d passed, then %v", n, err)
	}
	for range 20 {
		if _, err := g.Enter(t.Context(), &gate.Request{Token: rootKey, Tenant: "acme", Right: toIngest}); err != nil {
			t.Fatalf("the operator is limited: %v", err)
		}
	}
}

// Bytes and events are taken when they are known; what is refused of them leaves neither row nor debt.
func TestBytesAndEvents(t *testing.T) {
	w, g, l := limited(t, limit.Rate{Events: 3}, limit.Rate{Bytes: 100})
	v := w.visit(g)
	if err := v.TakeBytes(t.Context(), 60); err != nil {
		t.Fatal(err)
	}
	err := v.TakeBytes(t.Context(), 60)
	wantCode(t, err, problem.RateLimited)
	var p *problem.Error
	if !errors.As(err, &p) || p.RetryAfter < 200*time.Millisecond || p.RetryAfter > 201*time.Millisecond {
		t.Errorf("wait %+v", p)
	}
	record := func(ids ...string) error {
		events := make([]usage.Event, len(ids))
		for i, id := range ids {
			events[i] = event(id)
		}
		_, err := v.Record(t.Context(), events, "")
		return err
	}
	if err := record("1", "2"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, record("3", "4"), problem.RateLimited)
	if n := left(l, limit.Bucket{By: limit.Tenant, Name: "acme", Rate: limit.Rate{Events: 3}}); n != 1 {
		t.Errorf("%d events are left", n)
	}
	w.now = w.now.Add(time.Second)
	if err := record("3", "4", "5", "6", "7"); err != nil {
		t.Errorf("more than the bucket, which was full: %v", err)
	}
	w.now = w.now.Add(time.Second)
	wantCode(t, record("8", "9"), problem.RateLimited) // one is left after the debt
	if got := w.events(); got != "1 2 3 4 5 6 7" {
		t.Errorf("kept %s", got)
	}
}

// events lists the ids of acme's rows.
func (w *world) events() string {
	w.Helper()
	var ids []string
	err := w.store.View(w.Context(), "acme", func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{Events: true}, func(r *ledger.Row) bool {
			if r.Event != nil {
				ids = append(ids, r.Event.Key.Name)
			}
			return true
		})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return strings.Join(ids, " ")
}

// Without limits nothing is looked up and nothing is shown.
func TestNoLimitsCostNothing(t *testing.T) {
	w := newWorld(t)
	w.meter()
	g := gate.New(w.store, gate.Options{Now: w.clock,
		Limiter: limit.New(limit.Options{Now: w.clock, Shared: nobody{t}})})
	v := w.visit(g)
	if err := v.TakeBytes(t.Context(), 1<<30); err != nil {
		t.Error(err)
	}
	if _, err := v.Record(t.Context(), []usage.Event{event("1")}, ""); err != nil || v.Standing != (limit.Standing{}) {
		t.Errorf("%v, %+v", err, v.Standing)
	}
}

// nobody must not be asked.
type nobody struct{ *testing.T }

func (n nobody) Take(context.Context, limit.Cost, []limit.Bucket) (limit.Outcome, error) {
	n.Error("a limit was looked up")
	return limit.Outcome{}, nil
}

// Whoever would be let in again is still let in, and asking counts nothing. A closed tenant's key still opens its
// ledger to readers, but nothing will come to it any more.
func TestStill(t *testing.T) {
	w, g, l := limited(t, limit.Rate{Requests: 1}, limit.Rate{})
	id, read := w.key(tenant.APIKey{Scopes: tenant.Read})
	_, expires := w.key(tenant.APIKey{Scopes: tenant.Read, ExpiresAt: calendar.FromTime(w.now.Add(time.Minute))})
	still := func(token, origin string) error {
		return g.Still(t.Context(), &gate.Request{Token: token, Origin: origin,
			Right: gate.Right{Who: gate.OfTenant, Scope: tenant.Read}})
	}
	for range 3 {
		for _, token := range []string{read, expires, w.tokens["acme"]} {
			wantCode(t, still(token, ""), "")
			wantCode(t, still(token, page), "")
		}
	}
	bucket := limit.Bucket{By: limit.Tenant, Name: "acme", Rate: limit.Rate{Requests: 1}}
	if got := left(l, bucket); got != 1 {
		t.Errorf("%d requests are left", got)
	}
	wantCode(t, still(read, "https://evil.test"), problem.Forbidden)
	w.now = w.now.Add(time.Minute)
	wantCode(t, still(expires, ""), problem.Unauthorized)
	if err := w.registry.RevokeKey(t.Context(), "k", "acme", id); err != nil {
		t.Fatal(err)
	}
	wantCode(t, still(read, ""), problem.Unauthorized)
	if _, err := w.registry.CloseTenant(t.Context(), "k", "acme"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, still(w.tokens["acme"], ""), problem.TenantClosed)
}
