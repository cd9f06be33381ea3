package engine

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
)

// reapAtOnce is how many expired requests a checkpoint takes out of the state. Their rows stay in the ledger.
const reapAtOnce = 10_000

// Request implements store.View.
func (v *view) Request(key string) (request.Stored, error) {
	if v.tx != nil {
		for _, r := range slices.Backward(v.tx.rows) {
			if s, err := ledger.DecodeState(&r); err == nil && s.Request != nil && s.Request.Key == key {
				return *s.Request, nil
			}
		}
	}
	seq, err := v.requestRow(key)
	if err != nil {
		return request.Stored{}, err
	}
	missing := problem.New(problem.NotFound, "no request %q", key)
	if seq == 0 {
		return request.Stored{}, missing
	}
	r, err := v.row(seq)
	if err != nil {
		return request.Stored{}, err
	}
	s, err := ledger.DecodeState(&r)
	if err != nil {
		return request.Stored{}, err
	}
	if s.Request == nil || s.Request.Key != key {
		return request.Stored{}, missing
	}
	return *s.Request, nil
}

// requestRow is the row that keeps the answer, or 0.
func (v *view) requestRow(key string) (seq uint64, err error) {
	err = v.settled(func() error {
		for _, n := range v.e.notes {
			if kept, ok := n.requests[requestKey{v.b, key}]; ok {
				seq = kept.seq
				return nil
			}
		}
		return nil
	})
	if err != nil || seq != 0 {
		return seq, err
	}
	return v.e.state.Request(v.b.number, key) // without the lock, like a counter
}

// noteRequest remembers where an answer is kept. Engine.mu is held.
func (e *Engine) noteRequest(b *book, r *request.Stored, seq uint64) {
	e.notes[0].requests[requestKey{b, strings.Clone(r.Key)}] = keptRequest{seq, r.ExpiresAt}
}
