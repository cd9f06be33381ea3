package gate_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/fairness"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// world has two tenants, each with an admin's token, and the operator's.
type world struct {
	*testing.T
	store    *watched
	registry *registry.Service
	now      time.Time
	tokens   map[string]string
	operator string
}

// watched counts what the gate asks of a store, and can fail.
type watched struct {
	store.Store
	accesses, views int
	fail            error
}

func (w *watched) Access(ctx context.Context, tenantID, keyID string) (store.Access, error) {
	w.accesses++
	if w.fail != nil {
		return store.Access{}, w.fail
	}
	return w.Store.Access(ctx, tenantID, keyID)
}

func (w *watched) View(ctx context.Context, tenantID string, fn func(store.View) error) error {
	w.views++
	if w.fail != nil {
		return w.fail
	}
	return w.Store.View(ctx, tenantID, fn)
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: start, tokens: map[string]string{}}
	w.store = &watched{Store: naive.New(naive.Options{Now: w.clock})}
	w.registry = registry.New(w.store.Store, rand.Reader)
	for _, id := range []string{"acme", "beta"} {
		_, token, err := w.registry.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		w.tokens[id] = token
	}
	var err error
	if w.operator, _, err = w.registry.OperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) clock() time.Time { return w.now }

func (w *world) gate(rootKey string) *gate.Gate {
	return gate.New(w.store, gate.Options{RootKey: rootKey, Now: w.clock})
}

func wantCode(t *testing.T, err error, want problem.Code) {
	t.Helper()
	if problem.CodeOf(err) != want {
		t.Errorf("got error %v, want code %q", err, want)
	}
}

func keyID(token string) string {
	_, id, _ := tenant.SplitToken(token)
	return id
}

const rootKey = "a root key of any form"

func TestWhoIsCalling(t *testing.T) {
	w := newWorld(t)
	key, scoped, err := w.registry.CreateKey(t.Context(), "k", "acme",
		tenant.APIKey{Scopes: tenant.Ingest | tenant.Read})
	if err != nil {
		t.Fatal(err)
	}
	acme := gate.Caller{Tenant: "acme", KeyID: keyID(w.tokens["acme"]), Scopes: tenant.Admin}
	stored := gate.Caller{KeyID: keyID(w.operator), Operator: true, Scopes: tenant.Admin}
	storedAcme := stored
	storedAcme.Tenant = "acme"
	for name, c := range map[string]struct {
		root, token, header string
		want                gate.Caller
		code                problem.Code
	}{
		"a tenant's key":                   {token: w.tokens["acme"], want: acme},
		"a tenant's key naming its tenant": {token: w.tokens["acme"], header: "acme", want: acme},
		"a tenant's key beside a root key": {root: rootKey, token: w.tokens["acme"], want: acme},
		"a key of few scopes": {token: scoped, want: gate.Caller{Tenant: "acme", KeyID: key.ID,
			Scopes: tenant.Ingest | tenant.Read}},
		"a tenant's key naming another":      {token: w.tokens["acme"], header: "beta", code: problem.Forbidden},
		"a tenant's key naming none that is": {token: w.tokens["acme"], header: "nobody", code: problem.Forbidden},
		"a tenant's key naming the operator": {token: w.tokens["acme"], header: tenant.Operator,
			code: problem.Forbidden},
		"a bad key naming another": {token: w.tokens["acme"] + "0", header: "beta",
			code: problem.Unauthorized},
		"the operator":                       {token: w.operator, want: stored},
		"the operator for a tenant":          {token: w.operator, header: "acme", want: storedAcme},
		"the operator for an unknown tenant": {token: w.operator, header: "nobody", code: problem.NotFound},
		"the operator for the reserved one":  {token: w.operator, header: tenant.Operator, code: problem.NotFound},
		"the operator for no tenant's name":  {token: w.operator, header: "a/b", code: problem.NotFound},
		"the root key": {root: rootKey, token: rootKey,
			want: gate.Caller{Operator: true, Scopes: tenant.Admin}},
		"the root key for a tenant": {root: rootKey, token: rootKey, header: "beta",
			want: gate.Caller{Tenant: "beta", Operator: true, Scopes: tenant.Admin}},
		"the root key for an unknown tenant": {root: rootKey, token: rootKey, header: "nobody",
			code: problem.NotFound},
		"the stored key beside a root key": {root: rootKey, token: w.operator, code: problem.Unauthorized},
		"the stored key as the root key": {root: w.operator, token: w.operator,
			want: gate.Caller{Operator: true, Scopes: tenant.Admin}},
		"a root key when there is none": {token: rootKey, code: problem.Unauthorized},
		"a wrong root key":              {root: rootKey, token: rootKey + "!", code: problem.Unauthorized},
		"nothing":                       {code: problem.Unauthorized},
		"nothing beside a root key":     {root: rootKey, code: problem.Unauthorized},
		"a key whose id the root key borrows": {root: "tk_" + key.ID + "_" + strings.Repeat("0", 64), token: scoped,
			want: gate.Caller{Tenant: "acme", KeyID: key.ID, Scopes: tenant.Ingest | tenant.Read}},
		"a root key in the form of a token": {root: "tk_" + key.ID + "_" + strings.Repeat("0", 64), token: "tk_" +
			key.ID + "_" + strings.Repeat("0", 64), want: gate.Caller{Operator: true, Scopes: tenant.Admin}},
	} {
		got, err := w.gate(c.root).Authenticate(t.Context(), c.token, c.header)
		if problem.CodeOf(err) != c.code || (err == nil) != (c.code == "") {
			t.Errorf("%s: got error %v, want code %q", name, err, c.code)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Every bad token gets one and the same answer: from none of them can be learned what exists.
func TestBadTokensAreIndistinguishable(t *testing.T) {
	w := newWorld(t)
	good := w.tokens["acme"]
	revoked, revokedToken, err := w.registry.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.registry.RevokeKey(t.Context(), "k", "acme", revoked.ID); err != nil {
		t.Fatal(err)
	}
	_, expired, err := w.registry.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read,
		ExpiresAt: calendar.FromTime(start.Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	g := w.gate("")
	if _, err := g.Authenticate(t.Context(), expired, ""); err != nil {
		t.Errorf("before it expires: %v", err)
	}
	w.now = start.Add(time.Minute)
	secret := good[len(good)-64:]
	flipped := "0"
	if secret[0] == '0' {
		flipped = "1"
	}
	unauthorized := ""
	for name, token := range map[string]string{
		"empty":             "",
		"no form":           "hello",
		"wrong secret":      good[:len(good)-64] + flipped + secret[1:],
		"unknown key":       "tk_acme.00000000000000000000_" + secret,
		"unknown tenant":    "tk_nobody.00000000000000000000_" + secret,
		"another's key id":  "tk_" + strings.Replace(keyID(good), "acme", "beta", 1) + "_" + secret,
		"unknown operator":  "tk__operator.00000000000000000000_" + secret,
		"reserved tenant":   "tk__x.00000000000000000000_" + secret,
		"bytes in the id":   "tk_acme.\x00\xff_" + secret,
		"bytes in a tenant": "tk_ac\xffme.00_" + secret,
		"revoked":           revokedToken,
		"expired":           expired,
		"too long":          "tk_" + strings.Repeat("a", 10_000) + ".b_" + secret,
	} {
		c, err := g.Authenticate(t.Context(), token, "")
		if !problem.Is(err, problem.Unauthorized) || c != (gate.Caller{}) {
			t.Errorf("%s: %+v, %v", name, c, err)
			continue
		}
		if unauthorized == "" {
			unauthorized = err.Error()
		}
		if err.Error() != unauthorized {
			t.Errorf("%s is answered %q, others %q", name, err, unauthorized)
		}
	}
}

func TestARefusalOfAnotherTenantDoesNotTellWhetherItExists(t *testing.T) {
	w := newWorld(t)
	g := w.gate("")
	_, known := g.Authenticate(t.Context(), w.tokens["acme"], "beta")
	_, unknown := g.Authenticate(t.Context(), w.tokens["acme"], "nobody")
	if known.Error() != unknown.Error() {
		t.Errorf("%q and %q", known, unknown)
	}
}

func TestAuthenticatingATenantsKeyLooksOnceAtTheStore(t *testing.T) {
	w := newWorld(t)
	for _, root := range []string{"", rootKey} {
		w.store.accesses, w.store.views = 0, 0
		if _, err := w.gate(root).Authenticate(t.Context(), w.tokens["acme"], "acme"); err != nil {
			t.Fatal(err)
		}
		if w.store.accesses != 1 || w.store.views != 0 {
			t.Errorf("%d accesses, %d views", w.store.accesses, w.store.views)
		}
	}
	w.store.accesses = 0
	if _, err := w.gate(rootKey).Authenticate(t.Context(), "tk_a\x00.b_"+strings.Repeat("0", 64), ""); err == nil ||
		w.store.accesses != 0 {
		t.Errorf("the store was asked for an id that cannot exist (%v)", err)
	}
}

// A store that cannot answer says nothing about the key: "unauthorized" would make clients drop good keys.
func TestAStoreThatFailsIsNotABadKey(t *testing.T) {
	w := newWorld(t)
	w.store.fail = problem.New(problem.Unavailable, "down")
	_, err := w.gate("").Authenticate(t.Context(), w.tokens["acme"], "")
	wantCode(t, err, problem.Unavailable)
	_, err = w.gate(rootKey).Authenticate(t.Context(), rootKey, "acme")
	wantCode(t, err, problem.Unavailable)
}

func TestActor(t *testing.T) {
	for _, c := range []struct {
		caller gate.Caller
		want   string
	}{
		{gate.Caller{Tenant: "acme", KeyID: "acme.1"}, "acme.1"},
		{gate.Caller{Operator: true}, "operator"},
		{gate.Caller{Operator: true, Tenant: "acme", KeyID: "_operator.1"}, "operator"},
	} {
		if got := c.caller.Actor(); got != c.want {
			t.Errorf("%+v: %q", c.caller, got)
		}
	}
}

func event(id string) usage.Event {
	return usage.Event{ID: id, Meter: "calls", Customer: "c", Quantity: amount.One,
		Given: usage.GivenMeter | usage.GivenCustomer}
}

// visit lets acme in to send events.
func (w *world) visit(g *gate.Gate) gate.Visit {
	w.Helper()
	return w.visitAs(g, "acme")
}

func (w *world) visitAs(g *gate.Gate, tenantID string) gate.Visit {
	w.Helper()
	v, err := g.Enter(w.Context(), &gate.Request{Token: w.tokens[tenantID], Right: toIngest})
	if err != nil {
		w.Fatal(err)
	}
	return v
}

var toIngest = gate.Right{Who: gate.OfTenant, Scope: tenant.Ingest}

func (w *world) meter() {
	w.Helper()
	m := meter.Meter{Slug: "calls", Aggregation: meter.Sum, Lateness: meter.DefaultLateness,
		Future: meter.DefaultFuture}
	if _, err := w.registry.CreateMeter(w.Context(), "k", "acme", m); err != nil {
		w.Fatal(err)
	}
}

func TestFactsWithoutAnIDTakeTheRequestKeyAndTheirIndex(t *testing.T) {
	w := newWorld(t)
	w.meter()
	correction := usage.Event{Corrects: "own", Reason: "typo", Quantity: amount.One.Neg(), Given: usage.GivenQuantity}
	send := func(key string) string {
		v := w.visit(w.gate(""))
		verdicts, err := v.Record(t.Context(), []usage.Event{event(""), event("own"), event(""), correction}, key)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range verdicts {
			out = append(out, v.Status.String()+" "+v.Key.ID())
		}
		return strings.Join(out, ", ")
	}
	for _, step := range []struct{ key, want string }{
		{"r1", "accepted r1#0, accepted own, accepted r1#2, accepted r1#3"},
		{"r1", "duplicate r1#0, duplicate own, duplicate r1#2, duplicate r1#3"},
		{"r2", "accepted r2#0, duplicate own, accepted r2#2, rejected r2#3"}, // nothing is left to take from "own"
		{"", "rejected , duplicate own, rejected , rejected "},
	} {
		if got := send(step.key); got != step.want {
			t.Errorf("key %q: %s, want %s", step.key, got, step.want)
		}
	}
}

func TestFactsThatCannotBePassedOn(t *testing.T) {
	w := newWorld(t)
	w.meter()
	g := w.gate("")
	v := w.visit(g)
	_, err := v.Record(t.Context(), make([]usage.Event, store.MaxBatch+1), "")
	wantCode(t, err, problem.TooLarge)
	if _, err := w.registry.CloseTenant(t.Context(), "operator", "acme"); err != nil {
		t.Fatal(err)
	}
	v = w.visit(g) // a closed tenant stays readable
	verdicts, err := v.Record(t.Context(), []usage.Event{event("1")}, "")
	if err != nil || !problem.Is(verdicts[0].Problem, problem.TenantClosed) {
		t.Errorf("a closed tenant: %v, %v", verdicts, err)
	}
}

// Given a tenant that sends little, when another sends two large batches at once, then the store has them one after the
// other.
func TestLargeBatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.meter()
		held := &holding{Store: w.store, held: make(chan struct{}), at: make(chan int, 2)}
		g := gate.New(held, gate.Options{Now: w.clock})
		little, much := w.visitAs(g, "beta"), w.visit(g)
		if _, err := little.Record(t.Context(), []usage.Event{event("1")}, ""); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 2)
		for i := range 2 {
			visit := much
			go func() {
				_, err := visit.Record(t.Context(), make([]usage.Event, fairness.SmallBatch+1), fmt.Sprint("r", i))
				answered <- err
			}()
		}
		synctest.Wait()
		if n := len(held.at); n != 1 {
			t.Errorf("the store has %d large batches", n)
		}
		close(held.held)
		for range 2 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}

// holding is a store that keeps large batches waiting.
type holding struct {
	store.Store
	held chan struct{} // until it is closed
	at   chan int      // takes the size of each that has come
}

func (h *holding) Record(ctx context.Context, b store.Batch) ([]usage.Verdict, error) {
	if len(b.Events) > fairness.SmallBatch {
		h.at <- len(b.Events)
		<-h.held
	}
	return h.Store.Record(ctx, b)
}

func BenchmarkEnter(b *testing.B) {
	s := naive.New(naive.Options{})
	_, token, err := registry.New(s, rand.Reader).CreateTenant(b.Context(), "operator", tenant.Tenant{ID: "acme"})
	if err != nil {
		b.Fatal(err)
	}
	g := gate.New(s, gate.Options{RootKey: rootKey})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Enter(b.Context(), &gate.Request{Token: token, Right: toIngest}); err != nil {
			b.Fatal(err)
		}
	}
}
