// Package idempotency lets a caller send a request again without its effect happening again: the answer is kept in the
// same commit as the effect, under the caller's Idempotency-Key, and is given again to the same request.
//
// The whole handling of such a request runs inside one transaction of the store. It knows nothing of HTTP: a request is
// a key, a fingerprint and a function that makes an answer. Facts need none of this: each has a key of its own.
package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/store"
)

// # How a request happens once
//
//	wait for the same key in this process      at most Patience, else 409
//	look: is an answer kept?                   the same request: give it again; another: 422
//	in one transaction of the tenant:
//	    look again                             another node may have been faster
//	    handle the request, its services joined to this transaction
//	    keep the answer
//	give the answer
//
// What decides whether an answer is kept is how far the handling came. An answer of 2xx is kept with its effect. A
// refusal by the effect itself (it exists, it is closed) is kept alone, in a transaction of its own: the first one
// holds rows of half an effect and is given up. A refusal before the effect, by the request's shape, is not kept: the
// same request would be refused again. Failures are not kept: trying again is the cure.
//
// A crash before the commit leaves neither effect nor answer; after it, both.
//
// Handling may run more than once, when the store repeats a transaction; only what it appended and answered last
// counts.

// Options configure Requests. Store is required.
type Options struct {
	Store store.Store
	// Keep is how long an answer is kept. Default 24 h.
	Keep time.Duration
	// Patience is how long a request waits for another with its key. Default 2 s.
	Patience time.Duration
	// Admit is asked before a tenant keeps one more answer; it returns how long to wait when that would be too many.
	// Default: all are admitted.
	Admit func(tenantID string) (wait time.Duration, ok bool)
	// Observe gets what became of a request with a key. Default: nothing is called.
	Observe func(Outcome)
	// Committed gets every change that the services on the Store committed, and whose it is. Default: nothing is
	// called.
	Committed func(tenantID string, e audit.Event)
}

// Defaults of Options.
const (
	DefaultKeep     = 24 * time.Hour
	DefaultPatience = 2 * time.Second
)

// Outcome is what became of a request with a key.
type Outcome string

// The outcomes.
const (
	First    Outcome = "first"
	Replayed Outcome = "replayed"
	Reused   Outcome = "reused" // with another request
	InUse    Outcome = "in_use"
)

// Requests answers each request once. It is safe for concurrent use.
type Requests struct {
	store *Store
	o     Options

	mu      sync.Mutex // guards running
	running map[place]chan struct{}
}

type place struct{ tenant, key string }

// New works on a store. Services must be given the Store that it returns, or they commit by themselves.
func New(o Options) (*Requests, *Store) {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	s := &Store{o.Store, o.Committed}
	return &Requests{store: s, o: o, running: map[place]chan struct{}{}}, s
}

// Call is a request with a key.
type Call struct {
	Tenant      string // whose key it is
	Key         string
	Fingerprint [32]byte
	Actor       string
	// Effect is the tenant whose ledger the effect is in. Default: Tenant.
	Effect string
}

// Made is what handling a request came to.
type Made struct {
	request.Answer
	// Public is the body without the secrets that are shown once. Default: the body.
	Public []byte
	// Refusal is why the answer is no success; nil when it is one.
	Refusal error
}

// Handler makes the answer. It must act only through services on the Store, with the context that it is given.
type Handler func(ctx context.Context) Made

// Do answers the call: by handling it, or as it was answered before. Errors: KeyReused, KeyInUse, RateLimited, and
// those of the store.
func (r *Requests) Do(ctx context.Context, c Call, handle Handler) (a request.Answer, replayed bool, err error) {
	if c.Effect == "" {
		c.Effect = c.Tenant
	}
	done, err := r.wait(ctx, place{c.Tenant, c.Key})
	if err != nil {
		return a, false, err
	}
	defer done()
	kept, err := r.look(ctx, &c, c.Tenant)
	if err == nil && kept == nil { // nothing is kept of a request before it is admitted
		if wait, ok := r.admit(c.Tenant); !ok {
			return a, false, problem.New(problem.RateLimited,
				"too many requests with a new Idempotency-Key in one second: send fewer, leave the key out, or have "+
					"the operator raise requests.keys_per_second").Retry(wait)
		}
	}
	if err == nil && c.Effect != c.Tenant {
		kept, err = r.reserve(ctx, &c, kept)
	}
	if err != nil || kept != nil {
		return r.again(kept, err)
	}
	return r.first(ctx, &c, handle)
}

// wait takes the key for this process.
func (r *Requests) wait(ctx context.Context, p place) (done func(), err error) {
	patience := time.NewTimer(r.o.Patience)
	defer patience.Stop()
	for {
		r.mu.Lock()
		other, taken := r.running[p]
		if !taken {
			mine := make(chan struct{})
			r.running[p] = mine
			r.mu.Unlock()
			return func() { r.leave(p, mine) }, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-patience.C:
			r.observe(InUse)
			return nil, problem.New(problem.KeyInUse,
				"the first request with this Idempotency-Key is still running: try again").Retry(time.Second)
		}
	}
}

func (r *Requests) leave(p place, mine chan struct{}) {
	r.mu.Lock()
	delete(r.running, p)
	r.mu.Unlock()
	close(mine)
}

func (r *Requests) observe(o Outcome) {
	if r.o.Observe != nil {
		r.o.Observe(o)
	}
}

func (r *Requests) admit(tenantID string) (time.Duration, bool) {
	if r.o.Admit == nil {
		return 0, true
	}
	return r.o.Admit(tenantID)
}

// look finds what is kept under the key; nil when nothing is.
func (r *Requests) look(ctx context.Context, c *Call, tenantID string) (kept *request.Stored, err error) {
	err = r.store.Store.View(ctx, tenantID, func(v store.View) (err error) {
		kept, err = find(v, c)
		return err
	})
	if problem.Is(err, problem.NotFound) {
		return nil, nil //nolint:nilnil // no such tenant, hence nothing kept: handling will say so
	}
	return kept, err
}

// find refuses another request under the same key.
func find(v store.View, c *Call) (*request.Stored, error) {
	s, err := store.Request(v, c.Key)
	if problem.Is(err, problem.NotFound) {
		return nil, nil //nolint:nilnil // nothing kept
	}
	if err != nil {
		return nil, fmt.Errorf("look for the request: %w", err)
	}
	if !s.Live(v.Now()) {
		return nil, nil //nolint:nilnil // the key is new again
	}
	if s.Fingerprint != c.Fingerprint {
		return nil, problem.New(problem.KeyReused,
			"this Idempotency-Key was used for another request: take a new key for a new request")
	}
	return &s, nil
}

// again is the answer that was given before.
func (r *Requests) again(kept *request.Stored, err error) (request.Answer, bool, error) {
	if err != nil {
		if problem.Is(err, problem.KeyReused) {
			r.observe(Reused)
		}
		return request.Answer{}, false, err
	}
	r.observe(Replayed)
	return kept.Answer, true, nil
}

// reserve takes the key in the caller's own ledger when the effect is in another one, and finds the answer there if it
// happened: one transaction reaches one ledger.
func (r *Requests) reserve(ctx context.Context, c *Call, kept *request.Stored) (*request.Stored, error) {
	switch {
	case kept == nil:
		return r.keep(ctx, c, func(s *request.Stored) { s.Tenant = c.Effect })
	case kept.Tenant != "":
		return r.look(ctx, c, kept.Tenant)
	}
	return kept, nil
}

// keep stores something under the key, in a transaction of the caller's own ledger, and looks in it again: another node
// may have been faster, with this request or with another one under the same key. An answer that is kept already is
// returned and stays; a key that is only taken is not an answer.
func (r *Requests) keep(ctx context.Context, c *Call, fill func(*request.Stored)) (kept *request.Stored, err error) {
	err = r.store.commit(ctx, c.Tenant, func(tx store.Tx) (err error) {
		if kept, err = find(tx, c); err != nil {
			return err
		}
		if kept != nil && kept.Tenant == "" {
			return errFound
		}
		kept = nil
		return r.append(tx, c, fill)
	})
	if errors.Is(err, errFound) {
		return kept, nil
	}
	return nil, err
}

func (r *Requests) append(tx store.Tx, c *Call, fill func(*request.Stored)) error {
	s := request.Stored{Key: c.Key, Fingerprint: c.Fingerprint, ExpiresAt: tx.Now().Add(r.o.Keep)}
	fill(&s)
	if _, err := tx.Append(ledger.Keep(&s, c.Actor)); err != nil {
		return fmt.Errorf("keep the answer: %w", err)
	}
	return nil
}
