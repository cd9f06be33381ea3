package gate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/service/gate"
	"github.com/tallystick/tallystick/internal/store"
)

// listing is a store of which only the list of tenants is asked.
type listing struct {
	store.Store
	tenants []tenant.Tenant
	asked   int
	meet    func() // while it lists
	fail    error
}

func (l *listing) Tenants(_ context.Context, after string, limit int) ([]store.Listed, error) {
	l.asked++
	if l.meet != nil {
		l.meet()
	}
	var page []store.Listed
	for _, t := range l.tenants {
		if t.ID > after && len(page) < limit {
			page = append(page, store.Listed{ID: t.ID, Entity: entity.Entity{State: tenant.Kind.State(&t)}})
		}
	}
	return page, l.fail
}

func TestOriginsOfAllTenants(t *testing.T) {
	s, now := &listing{}, start
	for i := range 2500 {
		s.tenants = append(s.tenants, tenant.Tenant{ID: fmt.Sprintf("t%05d", i),
			AllowedOrigins: []string{fmt.Sprintf("https://%d.test", i), "https://shared.test"}})
	}
	g := gate.New(s, gate.Options{Now: func() time.Time { return now }})
	ask := func(origin string, want bool, asked int) {
		t.Helper()
		s.asked = 0
		if known, err := g.KnowsOrigin(t.Context(), origin); err != nil || known != want || s.asked != asked {
			t.Errorf("%s: %v, %v after %d pages; want %v after %d", origin, known, err, s.asked, want, asked)
		}
	}
	ask("https://0.test", true, 4) // the last page is empty
	ask("https://2499.test", true, 0)
	ask("https://SHARED.test", true, 0)
	for range 100 {
		ask("https://evil.test", false, 0) // made up ones do not reach the store
	}
	s.tenants[0].AllowedOrigins = []string{"https://new.test"}
	now = now.Add(time.Second)
	ask("https://new.test", true, 4)
	ask("https://0.test", false, 0)
	now = now.Add(30 * time.Second)
	ask("https://new.test", true, 0)
	s.tenants[0].AllowedOrigins = nil
	now = now.Add(30 * time.Second)
	ask("https://new.test", false, 4) // a known one is not known for ever
}

// The longer it takes to list, the seldomer it is done.
func TestListingIsABoundedShareOfTheTime(t *testing.T) {
	now := start
	s := &listing{meet: func() { now = now.Add(time.Second) }}
	g := gate.New(s, gate.Options{Now: func() time.Time { return now }})
	for range 100 {
		if known, err := g.KnowsOrigin(t.Context(), "https://evil.test"); known || err != nil {
			t.Fatal(known, err)
		}
		now = now.Add(time.Second)
	}
	if s.asked > 6 {
		t.Errorf("asked %d times in 100 seconds, each taking one", s.asked)
	}
}

func TestAStoreThatFailsKnowsNoOrigins(t *testing.T) {
	s := &listing{fail: problem.New(problem.Unavailable, "down"),
		tenants: []tenant.Tenant{{ID: "a", AllowedOrigins: []string{page}}}}
	g := gate.New(s, gate.Options{})
	_, err := g.KnowsOrigin(t.Context(), page)
	wantCode(t, err, problem.Unavailable)
	s.fail = nil
	if known, err := g.KnowsOrigin(t.Context(), page); !known || err != nil {
		t.Errorf("once it is back: %v, %v", known, err)
	}
}
