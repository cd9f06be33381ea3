package webhook

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/service/secrets"
)

func TestGate(t *testing.T) {
	var g gate
	var leaves []func()
	for range 3 {
		leave, err := g.enter(t.Context(), "a", 3)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := g.enter(ctx, "a", 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a fourth is in: %v", err)
	}
	other, err := g.enter(t.Context(), "b", 1)
	if err != nil {
		t.Fatal(err)
	}
	leaves[0]()
	next, err := g.enter(t.Context(), "a", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, leave := range append(leaves[1:], other, next) {
		leave()
	}
	if len(g.rooms) != 0 {
		t.Errorf("%d names are remembered after all have left", len(g.rooms))
	}
}

// One tenant's sinks that hang take their share of a host, and another tenant's delivery passes them by.
func TestDeliveriesToOneHostAreBounded(t *testing.T) {
	var mu sync.Mutex
	inside, most := 0, 0
	full, release := make(chan struct{}), make(chan struct{})
	r := receive(t, plainHTTP, func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/hangs" {
			return
		}
		mu.Lock()
		inside++
		if most = max(most, inside); inside == perTenant {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-release
		mu.Lock()
		inside--
		mu.Unlock()
	})
	sender := New(options(plenty))
	var all sync.WaitGroup
	deliver := func(tenant, path string) {
		c, err := sender.Carrier(Target{URL: r.URL + path, Secrets: []secrets.Validity{{Secret: newSecret(t)}}})
		if err != nil {
			t.Error(err)
			return
		}
		d := delivery()
		d.Tenant = tenant
		if err := errors.Join(c.Deliver(context.Background(), d), c.Close()); err != nil {
			t.Error(err)
		}
	}
	for range 3 * perTenant { // each from a sink of its own
		all.Go(func() { deliver("acme", "/hangs") })
	}
	<-full
	deliver("globex", "/works")
	close(release)
	all.Wait()
	if most != perTenant {
		t.Errorf("%d deliveries of one tenant were under way at once, want %d", most, perTenant)
	}
	if n := len(r.requests()); n != 3*perTenant+1 {
		t.Errorf("%d deliveries arrived", n)
	}
}

func TestWaitingForAPlaceEndsWithItsOwner(t *testing.T) {
	sender := New(options(time.Hour))
	c, err := sender.Carrier(Target{URL: "http://127.0.0.1:1/", Secrets: nil})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range perHost {
		leave, err := sender.hosts.enter(t.Context(), "127.0.0.1", perHost)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Deliver(ctx, delivery()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(sender.tenants.rooms) != 0 {
		t.Error("the tenant's place is still taken")
	}
}
