package gate

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of reading every tenant's origins.
const (
	// originsAfter is how soon an origin that was not among them is looked for again, or the share of time that looking
	// took, whichever is longer: those who make origins up must not keep the store busy.
	originsAfter = time.Second
	originsShare = 20
	// originsKept is how long one that is no longer allowed may still be taken for one.
	originsKept = time.Minute
)

// origins are those that any tenant allows. They are no authority: a browser asks before it sends a request, without
// the key that would show whose it is; the request itself is judged by its own tenant's.
type origins struct {
	mu    sync.Mutex // guards all below, and is held while they are read
	known map[string]struct{}
	read  time.Time     // when they were
	took  time.Duration // to read them
}

// KnowsOrigin reports whether any tenant allows the origin, or did until a moment ago. Errors: those of the store.
func (g *Gate) KnowsOrigin(ctx context.Context, origin string) (bool, error) {
	o, origin := &g.origins, strings.ToLower(origin)
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.known[origin]
	age := g.now().Sub(o.read)
	if o.known != nil && (known && age < originsKept || age < max(originsAfter, originsShare*o.took)) {
		return known, nil
	}
	if err := o.renew(ctx, g.store, g.now); err != nil {
		return false, err
	}
	_, known = o.known[origin]
	return known, nil
}

func (o *origins) renew(ctx context.Context, s store.Store, now func() time.Time) error {
	began, all := now(), map[string]struct{}{}
	err := store.EachTenant(ctx, s, func(l *store.Listed) error {
		t, err := l.Tenant()
		if err != nil {
			return err
		}
		for _, origin := range t.AllowedOrigins {
			all[origin] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.known, o.read = all, now()
	o.took = o.read.Sub(began)
	return nil
}
