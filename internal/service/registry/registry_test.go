package registry_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

var start = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// world is a registry on a naive store whose Update runs every function twice, discarding the first run, as a store
// that retries may.
type world struct {
	*testing.T
	*registry.Service
	store store.Store
	now   time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: start}
	w.store = retrying{naive.New(naive.Options{Now: func() time.Time { return w.now }})}
	w.Service = registry.New(w.store, rand.Reader)
	return w
}

type retrying struct{ store.Store }

func (r retrying) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	discarded := errors.New("run again")
	err := r.Store.Update(ctx, id, func(tx store.Tx) error {
		_ = fn(tx)
		return discarded
	})
	if !errors.Is(err, discarded) {
		return err
	}
	return r.Store.Update(ctx, id, fn)
}

// fill appends states to acme's ledger in one commit: one by one, a thousand would take their time.
func (w *world) fill(states ...entity.State) {
	w.Helper()
	err := w.store.Update(w.Context(), "acme", func(tx store.Tx) error {
		for _, s := range states {
			if _, err := tx.Append(ledger.Change{State: s}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// recorded lists a tenant's changes from row first on, as "type entity by actor".
func (w *world) recorded(tenantID string, first uint64) []string {
	w.Helper()
	var out []string
	w.rows(tenantID, func(r *ledger.Row) {
		if r.Seq >= first {
			out = append(out, fmt.Sprintf("%s %s %s by %s/%s", r.Change.Type, r.Change.EntityType, r.Change.EntityID,
				r.Change.Source, r.Change.Actor))
		}
	})
	return out
}

func (w *world) rows(tenantID string, fn func(r *ledger.Row)) {
	w.Helper()
	err := w.store.View(w.Context(), tenantID, func(v store.View) error {
		_, _, err := v.Rows(0, store.RowHint{Changes: true}, func(r *ledger.Row) bool {
			if r.Change != nil {
				fn(r)
			}
			return true
		})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

// payload is that of the tenant's last change.
func (w *world) payload(tenantID string) (last string) {
	w.Helper()
	w.rows(tenantID, func(r *ledger.Row) { last = r.Change.Payload })
	return last
}

func (w *world) head(tenantID string) (seq uint64) {
	w.Helper()
	err := w.store.View(w.Context(), tenantID, func(v store.View) error {
		seq = v.Head().Seq
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return seq
}

func (w *world) tenant(id string) string {
	w.Helper()
	_, token, err := w.CreateTenant(w.Context(), "operator", tenant.Tenant{ID: id})
	if err != nil {
		w.Fatal(err)
	}
	return token
}

func wantCode(t *testing.T, err error, want problem.Code) {
	t.Helper()
	if problem.CodeOf(err) != want {
		t.Errorf("got error %v, want code %q", err, want)
	}
}

func wantSame[T any](t *testing.T, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCreatingATenantMakesItAndItsAdminKeyInOneCommit(t *testing.T) {
	w := newWorld(t)
	made, token, err := w.CreateTenant(t.Context(), "operator", tenant.Tenant{
		ID: "acme", Name: "Acme", AllowedOrigins: []string{"https://acme.example"}, Closed: true, ClosedAt: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := tenant.Tenant{ID: "acme", Name: "Acme", AllowedOrigins: []string{"https://acme.example"},
		CreatedAt: calendar.FromTime(start)}
	wantSame(t, made, want)
	got, err := w.Tenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, got, want)

	tenantID, keyID, ok := tenant.SplitToken(token)
	if !ok || tenantID != "acme" {
		t.Fatalf("token %q does not name the tenant", token)
	}
	access, err := w.store.Access(t.Context(), "acme", keyID)
	key := access.Key
	if err != nil {
		t.Fatal(err)
	}
	if !key.Admits(token, calendar.FromTime(start)) || key.Scopes != tenant.Admin {
		t.Errorf("the token does not admit an admin: %+v", key)
	}
	wantSame(t, w.recorded("acme", 1), []string{
		"tenant.created tenant acme by api/operator",
		"api_key.created api_key " + keyID + " by api/operator",
	})
	sections := 0
	err = w.store.View(t.Context(), "acme", func(v store.View) error {
		return v.Sections(1, func(*ledger.Section) error { sections++; return nil })
	})
	if err != nil || sections != 1 {
		t.Errorf("%d sections (%v), want the tenant and its key in one", sections, err)
	}
}

func TestTenantsThatCannotBeCreated(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	for _, c := range []struct {
		tenant tenant.Tenant
		want   problem.Code
	}{
		{tenant.Tenant{ID: "acme"}, problem.Exists},
		{tenant.Tenant{ID: ""}, problem.Invalid},
		{tenant.Tenant{ID: tenant.Operator}, problem.Invalid},
		{tenant.Tenant{ID: "_x"}, problem.Invalid},
		{tenant.Tenant{ID: "a/b"}, problem.Invalid},
		{tenant.Tenant{ID: strings.Repeat("a", tenant.MaxID+1)}, problem.Invalid},
		{tenant.Tenant{ID: "beta", AllowedOrigins: []string{"*"}}, problem.Invalid},
	} {
		made, token, err := w.CreateTenant(t.Context(), "operator", c.tenant)
		wantCode(t, err, c.want)
		if token != "" || made.ID != "" {
			t.Errorf("tenant %q: a refusal returned %q and a token of %d bytes", c.tenant.ID, made.ID, len(token))
		}
	}
	if w.head("acme") != 2 {
		t.Error("a refusal left a row")
	}
	list, err := w.Tenants(t.Context(), "", 10)
	if err != nil || len(list) != 1 {
		t.Errorf("%d tenants, %v", len(list), err)
	}
}

func TestUpdatingATenant(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	name, bad := "Acme Ltd", strings.Repeat("x", tenant.MaxName+1)
	origins := []string{"https://a.example"}

	got, err := w.UpdateTenant(t.Context(), "k1", "acme", registry.TenantPatch{Name: &name, AllowedOrigins: &origins})
	if err != nil || got.Name != name || len(got.AllowedOrigins) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = w.UpdateTenant(t.Context(), "k1", "acme", registry.TenantPatch{Name: &bad})
	wantCode(t, err, problem.Invalid)
	for _, nothing := range []registry.TenantPatch{{}, {Name: &name}, {AllowedOrigins: &origins}} {
		if got, err = w.UpdateTenant(t.Context(), "k1", "acme", nothing); err != nil || got.Name != name {
			t.Errorf("%+v, %v", got, err)
		}
	}
	none := []string{}
	if got, err = w.UpdateTenant(t.Context(), "k2", "acme", registry.TenantPatch{AllowedOrigins: &none}); err != nil ||
		len(got.AllowedOrigins) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	wantSame(t, w.recorded("acme", 3), []string{"tenant.updated tenant acme by api/k1",
		"tenant.updated tenant acme by api/k2"})
	_, err = w.UpdateTenant(t.Context(), "k1", "nobody", registry.TenantPatch{Name: &name})
	wantCode(t, err, problem.NotFound)
}

// The salt makes derived keys: if a change of the tenant lost it, every derived fact could be counted again.
func TestATenantKeepsItsSaltThroughChanges(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	w.tenant("beta")
	salt := func(id string) [32]byte {
		var out [32]byte
		err := w.store.View(t.Context(), id, func(v store.View) error {
			tn, err := store.Tenant(v)
			out = tn.Salt
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := salt("acme")
	if before == [32]byte{} || before == salt("beta") {
		t.Fatal("salts must be drawn")
	}
	name := "Acme"
	if _, err := w.UpdateTenant(t.Context(), "k", "acme", registry.TenantPatch{Name: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CloseTenant(t.Context(), "k", "acme"); err != nil {
		t.Fatal(err)
	}
	if salt("acme") != before {
		t.Error("the salt changed")
	}
}

func TestAClosedTenantRefusesEveryWriteAndStaysReadable(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	key, _, err := w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateMeter(t.Context(), "k", "acme", sumMeter("calls")); err != nil {
		t.Fatal(err)
	}
	closed, err := w.CloseTenant(t.Context(), "operator", "acme")
	if err != nil || !closed.Closed || closed.ClosedAt != calendar.FromTime(start) {
		t.Fatalf("%+v, %v", closed, err)
	}
	head := w.head("acme")
	w.now = w.now.Add(time.Hour)
	again, err := w.CloseTenant(t.Context(), "operator", "acme")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, again, closed)

	name := "x"
	_, err = w.UpdateTenant(t.Context(), "k", "acme", registry.TenantPatch{Name: &name})
	wantCode(t, err, problem.TenantClosed)
	_, _, err = w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	wantCode(t, err, problem.TenantClosed)
	_, err = w.CreateMeter(t.Context(), "k", "acme", sumMeter("more"))
	wantCode(t, err, problem.TenantClosed)
	_, err = w.UpdateMeter(t.Context(), "k", "acme", "calls", rename("x"))
	wantCode(t, err, problem.TenantClosed)
	_, _, err = w.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: "acme"})
	wantCode(t, err, problem.Exists)
	if w.head("acme") != head {
		t.Error("a refusal or a repeated close left a row")
	}

	if got, err := w.Key(t.Context(), "acme", key.ID); err != nil || got.ID != key.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := w.Meters(t.Context(), "acme", "", 10); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	wantSame(t, w.recorded("acme", head), []string{"tenant.closed tenant acme by api/operator"})

	if err := w.RevokeKey(t.Context(), "operator", "acme", key.ID); err != nil {
		t.Errorf("a closed tenant's key cannot be revoked: %v", err)
	}
}

func TestTheOperatorsKeyIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	token, created, err := w.OperatorKey(t.Context())
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	_, keyID, ok := tenant.SplitToken(token)
	if !ok {
		t.Fatalf("token %q", token)
	}
	access, err := w.store.Access(t.Context(), tenant.Operator, keyID)
	key := access.Key
	if err != nil || !key.Admits(token, calendar.FromTime(start)) || key.Scopes != tenant.Admin {
		t.Errorf("%+v, %v", key, err)
	}
	token, created, err = w.OperatorKey(t.Context())
	if err != nil || created || token != "" {
		t.Errorf("second start: token %q, created %v, %v", token, created, err)
	}
	wantSame(t, w.recorded(tenant.Operator, 1), []string{
		"tenant.created tenant _operator by system/system",
		"api_key.created api_key " + keyID + " by system/system",
	})
}

// overtaken is a store whose first update comes to nothing, and runs again when another node has written.
type overtaken struct {
	store.Store
	by func()
}

func (o *overtaken) Update(ctx context.Context, id string, fn func(store.Tx) error) error {
	if by := o.by; by != nil {
		o.by = nil
		discarded := errors.New("run again")
		err := o.Store.Update(ctx, id, func(tx store.Tx) error { return errors.Join(fn(tx), discarded) })
		if !errors.Is(err, discarded) {
			return err
		}
		by()
	}
	return o.Store.Update(ctx, id, fn)
}

// Given two nodes that start at once, when the one that was first loses its transaction to the other, then it shows no
// key: its own was never made.
func TestAnOperatorsKeyThatWasNotMadeIsNotShown(t *testing.T) {
	w := newWorld(t)
	var winner string
	slow := registry.New(&overtaken{w.store, func() { winner, _, _ = w.OperatorKey(t.Context()) }}, rand.Reader)
	token, created, err := slow.OperatorKey(t.Context())
	if err != nil || created || token != "" || winner == "" {
		t.Errorf("the node that lost shows %q, created %v, %v; the winner's is %q", token, created, err, winner)
	}
}

// unreadable is a store on which a tenant is listed by its id alone, because a newer build wrote it.
type unreadable struct{ store.Store }

func (u unreadable) Tenants(ctx context.Context, after string, limit int) ([]store.Listed, error) {
	list, err := u.Store.Tenants(ctx, after, limit)
	return append(list, store.Listed{ID: "newer"}), err
}

func (u unreadable) View(ctx context.Context, id string, fn func(store.View) error) error {
	if id == "newer" {
		return problem.New(problem.Unavailable, "a newer build wrote row 7")
	}
	return u.Store.View(ctx, id, fn)
}

func TestAListWithATenantOfANewerBuildSaysSo(t *testing.T) {
	w := newWorld(t)
	if _, err := registry.New(unreadable{w.store}, rand.Reader).Tenants(t.Context(), "", 10); !problem.Is(err,
		problem.Unavailable) || !strings.Contains(err.Error(), "newer: ") {
		t.Errorf("listed: %v", err)
	}
}

func TestTheOperatorsTenantIsNobodysToNameOrRead(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.OperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, name := t.Context(), "x"
	_, err := w.Tenant(ctx, tenant.Operator)
	wantCode(t, err, problem.NotFound)
	_, err = w.UpdateTenant(ctx, "k", tenant.Operator, registry.TenantPatch{Name: &name})
	wantCode(t, err, problem.NotFound)
	_, err = w.CloseTenant(ctx, "k", tenant.Operator)
	wantCode(t, err, problem.NotFound)
	_, _, err = w.CreateKey(ctx, "k", tenant.Operator, tenant.APIKey{Scopes: tenant.Read})
	wantCode(t, err, problem.NotFound)
	_, err = w.Keys(ctx, tenant.Operator, "", 10)
	wantCode(t, err, problem.NotFound)
	_, err = w.CreateMeter(ctx, "k", tenant.Operator, sumMeter("m"))
	wantCode(t, err, problem.NotFound)
	list, err := w.Tenants(ctx, "", 10)
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if w.head(tenant.Operator) != 2 {
		t.Error("the operator's ledger changed")
	}
}

func TestOneOfManyCreationsOfATenantWins(t *testing.T) {
	w := newWorld(t)
	won := race(func(int) error {
		_, _, err := w.CreateTenant(context.WithoutCancel(t.Context()), "operator", tenant.Tenant{ID: "acme"})
		return err
	}, t)
	if won != 1 || w.head("acme") != 2 {
		t.Errorf("%d won, %d rows", won, w.head("acme"))
	}
	operators := race(func(int) error {
		_, created, err := w.OperatorKey(context.WithoutCancel(t.Context()))
		if err == nil && !created {
			return problem.New(problem.Exists, "made before")
		}
		return err
	}, t)
	if operators != 1 || w.head(tenant.Operator) != 2 {
		t.Errorf("%d operator keys, %d rows", operators, w.head(tenant.Operator))
	}
}

// race runs fn at once from several goroutines and returns how many succeeded; all others must find what exists.
func race(fn func(i int) error, t *testing.T) int {
	t.Helper()
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		wantCode(t, err, problem.Exists)
	}
	return won
}

// No secret may be in an audit event: payloads are shown to people.
func TestPayloadsCarryNoSecret(t *testing.T) {
	w := newWorld(t)
	token := w.tenant("acme")
	key, second, err := w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{
		Name: "ci", Scopes: tenant.Ingest | tenant.Read, RateLimit: tenant.RateLimit{EventsPerSecond: 5},
		ExpiresAt: calendar.FromTime(start.Add(time.Hour)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.RevokeKey(t.Context(), "k", "acme", key.ID); err != nil {
		t.Fatal(err)
	}
	secrets := []string{token[len(token)-64:], second[len(second)-64:]}
	for _, tk := range []string{token, second} {
		h := tenant.HashToken(tk)
		secrets = append(secrets, hex.EncodeToString(h[:]))
	}
	last := ""
	w.rows("acme", func(r *ledger.Row) {
		last = r.Change.Payload
		for _, s := range secrets {
			if strings.Contains(last, s) || bytes.Contains(r.Change.State.Data, []byte(s)) {
				t.Errorf("%s shows a secret", r.Change.Type)
			}
		}
		for _, word := range []string{"salt", "hash", "secret", "tk_"} {
			if strings.Contains(last, word) {
				t.Errorf("%s shows %s: %s", r.Change.Type, word, last)
			}
		}
	})
	wantSame(t, last, `{"id":"`+key.ID+`","name":"ci","scopes":["ingest","read"],"rate_limit":{"events_per_second":5},`+
		`"expires_at":"2026-11-15T13:00:00Z","revoked_at":"2026-11-15T12:00:00Z"}`)
}
