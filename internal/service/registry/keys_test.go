package registry_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/registry"
)

func TestAKeyIsMadeListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	expires := calendar.FromTime(start.Add(time.Hour))
	key, token, err := w.CreateKey(t.Context(), "root", "acme", tenant.APIKey{
		ID: "chosen", Hash: [32]byte{1}, CreatedAt: 7, RevokedAt: 7, // not the caller's to choose
		Name: "ci", Scopes: tenant.Ingest, ExpiresAt: expires, RateLimit: tenant.RateLimit{RequestsPerSecond: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := tenant.APIKey{ID: key.ID, Name: "ci", Scopes: tenant.Ingest, ExpiresAt: expires,
		CreatedAt: calendar.FromTime(start),
		RateLimit: tenant.RateLimit{RequestsPerSecond: 3}}
	wantSame(t, key, want)
	if !strings.HasPrefix(key.ID, "acme.") {
		t.Errorf("id %q does not name its tenant", key.ID)
	}
	access, err := w.store.Access(t.Context(), "acme", key.ID)
	stored := access.Key
	if err != nil || !stored.Admits(token, calendar.FromTime(start)) {
		t.Errorf("the token does not admit: %v", err)
	}
	got, err := w.Key(t.Context(), "acme", key.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, got, want)

	w.now = w.now.Add(time.Minute)
	for range 2 {
		if err := w.RevokeKey(t.Context(), "root", "acme", key.ID); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Minute)
	}
	want.RevokedAt = calendar.FromTime(start.Add(time.Minute))
	list, err := w.Keys(t.Context(), "acme", "", 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, k := range list {
		if k.Hash != [32]byte{} {
			t.Errorf("key %s is listed with its hash", k.ID)
		}
		if k.ID == key.ID {
			wantSame(t, k, want)
		}
	}
	wantSame(t, w.recorded("acme", 3), []string{
		"api_key.created api_key " + key.ID + " by api/root", "api_key.revoked api_key " + key.ID + " by api/root",
	})
	rest, err := w.Keys(t.Context(), "acme", list[0].ID, 10)
	if err != nil || len(rest) != 1 || rest[0].ID != list[1].ID {
		t.Errorf("after the first: %+v, %v", rest, err)
	}
}

func TestKeysThatCannotBeMadeOrFound(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	w.tenant("beta")
	other, _, err := w.CreateKey(t.Context(), "k", "beta", tenant.APIKey{Scopes: tenant.Read})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tenant string
		key    tenant.APIKey
		want   problem.Code
	}{
		"no scope": {"acme", tenant.APIKey{}, problem.Invalid},
		"expired": {"acme", tenant.APIKey{Scopes: tenant.Read, ExpiresAt: calendar.FromTime(start)},
			problem.Invalid},
		"long name": {"acme", tenant.APIKey{Scopes: tenant.Read, Name: strings.Repeat("x", tenant.MaxName+1)},
			problem.Invalid},
		"negative rate": {"acme", tenant.APIKey{Scopes: tenant.Read, RateLimit: tenant.RateLimit{BytesPerSecond: -1}},
			problem.Invalid},
		"no tenant":  {"nobody", tenant.APIKey{Scopes: tenant.Read}, problem.NotFound},
		"bad tenant": {"", tenant.APIKey{Scopes: tenant.Read}, problem.NotFound},
	} {
		_, token, err := w.CreateKey(t.Context(), "k", c.tenant, c.key)
		if problem.CodeOf(err) != c.want || token != "" {
			t.Errorf("%s: %v, want %s; token of %d bytes", name, err, c.want, len(token))
		}
	}
	_, err = w.Key(t.Context(), "acme", other.ID)
	wantCode(t, err, problem.NotFound)
	wantCode(t, w.RevokeKey(t.Context(), "k", "acme", other.ID), problem.NotFound)
	if got, err := w.Key(t.Context(), "beta", other.ID); err != nil || got.RevokedAt != 0 {
		t.Errorf("another tenant's key: %+v, %v", got, err)
	}
	if w.head("acme") != 2 {
		t.Error("a refusal left a row")
	}
}

func TestKeysInForceAreBoundedAndRevokedOnesAreNotCounted(t *testing.T) {
	w := newWorld(t)
	w.tenant("acme")
	var others []entity.State
	for i := 2; i < tenant.MaxKeys; i++ {
		others = append(others,
			tenant.KeyKind.State(&tenant.APIKey{ID: fmt.Sprintf("acme.%d", i), Scopes: tenant.Read}))
	}
	w.fill(others...)
	first, _, err := w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	if err != nil {
		t.Fatalf("the last key: %v", err)
	}
	_, _, err = w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	wantCode(t, err, problem.Conflict)
	if err := w.RevokeKey(t.Context(), "k", "acme", first.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read}); err != nil {
		t.Errorf("after a revocation: %v", err)
	}
	// Now there are more keys than one page of the count, and again as many in force as there may be.
	_, _, err = w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read})
	wantCode(t, err, problem.Conflict)
}

type constant byte

func (c constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

func TestABrokenSourceOfRandomnessReplacesNoKey(t *testing.T) {
	w := newWorld(t)
	w.Service = registry.New(w.store, constant(7))
	token := w.tenant("acme")
	if _, _, err := w.CreateKey(t.Context(), "k", "acme", tenant.APIKey{Scopes: tenant.Read}); err == nil {
		t.Error("two keys with one id")
	}
	_, id, _ := tenant.SplitToken(token)
	if k, err := w.Key(t.Context(), "acme", id); err != nil || k.Scopes != tenant.Admin {
		t.Errorf("the first key is now %+v, %v", k, err)
	}

	w.Service = registry.New(w.store, io.LimitReader(rand.Reader, 40))
	if _, _, err := w.CreateTenant(t.Context(), "operator", tenant.Tenant{ID: "beta"}); err == nil {
		t.Error("a tenant was made without enough randomness")
	}
	_, err := w.Tenant(t.Context(), "beta")
	wantCode(t, err, problem.NotFound)
}
