package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// worker carries the rows of one tenant to one sink, while it has the claim to do so.
//
//	load the sink ─▶ is a delivery begun? ─no─▶ plan the next one, keep it ─▶ deliver ─▶ done: keep that, with the
//
// next
//
//	└─────yes──────────────────────────────────────────▲   └─▶ failed: keep when to try again
//
// What is kept is durable before the receiver sees anything, so that a delivery has the same id and rows every time.
// The position moves only behind a delivery that the receiver has, or that was given up and is in the ledger as FAILED.
type worker struct {
	r        *Runner
	tenantID string
	sinkID   string
	claim    store.Claim
	at       store.Standing // as it was kept last
	note     note           // the same
	carrier  Carrier
	of       sink.Sink // that the carrier is for
	looked   uint64    // the ledger's last row when there was nothing left to do
	ahead    stretch   // rows behind the position that were read already, by the sink's filter
	ready    []Row     // of the delivery that was begun last, if this worker began it
	readyFor *begun
}

const (
	// readAhead is how many rows are read at once, at least.
	readAhead = 1000
	// maxAhead is how many bytes of rows are read at once if memory allows: a store decodes all rows of a commit for
	// one of them, and under load a commit has many thousands.
	maxAhead = 4 << 20
	// aheadOfAll is what all sinks that are at work share for that.
	aheadOfAll = 64 << 20
)

// errEnd ends a worker without a failure: there is nothing to do, or somebody else does it.
var errEnd = errors.New("nothing to do")

// run works until there is nothing left to do, or the context ends.
func (w *worker) run(ctx context.Context) (err error) {
	follower := sink.Follower(w.sinkID)
	w.claim, err = w.r.store.Claim(ctx, w.tenantID, follower, w.r.owner, w.r.o.ClaimTime)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.r.o.ClaimTime)
		defer cancel()
		_ = w.r.store.Release(ctx, w.claim) // it ends by itself, too
	}()
	w.at = w.claim.Standing
	if w.note, err = decodeNote(w.at.Note); err != nil {
		return err
	}
	for {
		err := w.step(ctx)
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// step makes one attempt at a delivery, of one that was begun or the next.
func (w *worker) step(ctx context.Context) error {
	if err := w.load(ctx); err != nil {
		return err
	}
	if w.note.Under == nil {
		next := w.note
		position, err := w.begin(ctx, &next, w.at.Position)
		if err != nil {
			return err
		}
		if err := w.keep(ctx, position, next, 0); err != nil {
			return err
		}
		if next.Under == nil {
			return errEnd
		}
	}
	if wait := w.at.Due.Time().Sub(w.r.o.Now()); w.at.Due != 0 && wait > 0 {
		// The runner looks now and then, and starts a worker again when it is due. Short pauses are waited for.
		if wait > w.r.o.Poll || !pause(ctx, wait) {
			return errEnd
		}
	}
	err := w.attempt(ctx, w.note.Under)
	switch {
	case err == nil:
		return w.delivered(ctx)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrGone):
		return w.pause(ctx, err)
	}
	return w.failed(ctx, err)
}

// load reads the sink as it is now. One that is gone, paused or whose ledger has moved ends the worker.
func (w *worker) load(ctx context.Context) error {
	var s sink.Sink
	var t tenant.Tenant
	var head uint64
	err := w.r.store.View(ctx, w.tenantID, func(v store.View) (err error) {
		head = v.Head().Seq
		if t, err = store.Tenant(v); err != nil {
			return err
		}
		s, err = store.Get(v, &sink.Kind, w.sinkID)
		return err
	})
	if problem.Is(err, problem.NotFound) {
		s.Deleted, err = true, nil // places are made after sinks
	}
	if err != nil {
		return err
	}
	if s.Deleted || s.Paused || t.MovedTo != "" || s.UpdatedAt != w.of.UpdatedAt {
		w.closeCarrier()
	}
	switch {
	case s.Deleted:
		if err := w.r.store.Unfollow(ctx, w.tenantID, w.claim.Follower); err != nil {
			return err
		}
		return errEnd
	case s.Paused || t.MovedTo != "":
		w.looked = head // resuming it is another row
		return errEnd
	}
	if w.carrier == nil {
		w.of, w.ahead = s, stretch{}
	}
	return nil
}

func (w *worker) closeCarrier() {
	if w.carrier != nil {
		_ = w.carrier.Close() // nothing is under way on it
		w.carrier = nil
	}
}

// begin plans the next delivery into a note: of an item that waits, or behind the position. It returns the position
// after rows that the sink does not ask for.
func (w *worker) begin(ctx context.Context, n *note, position uint64) (uint64, error) {
	err := w.r.store.View(ctx, w.tenantID, func(v store.View) error {
		t, err := store.Tenant(v)
		if err != nil {
			return err
		}
		if done, err := w.beginItem(v, &t, n); done || err != nil {
			return err
		}
		head := v.Head().Seq
		w.looked = head
		for position < head {
			if err := w.fill(v, &t, position, head); err != nil {
				return err
			}
			b, rows := w.ahead.cut(&w.of.Filter, w.of.Batch)
			if len(rows) > 0 {
				n.Under, w.readyFor, w.ready = &b, &b, rows
				return nil
			}
			position = b.To
		}
		return nil
	})
	return position, err
}

// fill has rows behind a position ready to be cut into deliveries.
func (w *worker) fill(v store.View, t *tenant.Tenant, position, head uint64) (err error) {
	if w.ahead.from == position+1 && len(w.ahead.rows) > 0 {
		return nil
	}
	w.ahead, err = read(v, w.r.o.Render, t, &w.of.Filter, w.sinkID, position, head, w.r.enough(w.of.Batch))
	if err != nil {
		return fmt.Errorf("read rows behind %d: %w", position, err)
	}
	return nil
}

// attempt hands a delivery to the carrier, and keeps the claim meanwhile. A claim that is lost ends the attempt: the
// node that has it now makes its own.
func (w *worker) attempt(ctx context.Context, b *begun) error {
	rows, err := w.ready, error(nil)
	if w.readyFor != b {
		rows, err = w.rows(ctx, b)
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	if w.carrier == nil {
		if w.carrier, err = w.r.carriers.Carrier(w.tenantID, &w.of); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.r.o.AttemptTime, errTooLong)
	defer cancel()
	ctx, lost := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		w.keepClaim(ctx, lost)
	}()
	err = w.carrier.Deliver(ctx, &Delivery{ID: b.id(w.sinkID), Tenant: w.tenantID, Sink: w.sinkID, Epoch: b.Epoch,
		From: b.From, To: b.To, Replayed: b.Item != "", Rows: rows})
	lost(nil)
	<-kept
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errLost) {
		return cause
	}
	if err == nil {
		w.r.metrics.delivered(w.of.Way, len(rows))
	}
	return err
}

var (
	errTooLong = errors.New("the attempt took too long")
	errLost    = errors.New("another node delivers for this sink now")
)

// keepClaim makes the claim last while an attempt is under way.
func (w *worker) keepClaim(ctx context.Context, lost context.CancelCauseFunc) {
	tick := time.NewTicker(w.r.o.ClaimTime / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := w.r.store.Advance(ctx, w.claim, w.at, w.r.o.ClaimTime)
		if problem.Is(err, problem.Conflict) || problem.Is(err, problem.NotFound) {
			lost(errLost)
			return
		}
	}
}

func (w *worker) rows(ctx context.Context, b *begun) (rows []Row, err error) {
	err = w.r.store.View(ctx, w.tenantID, func(v store.View) error {
		rows, err = b.rows(v, w.r.o.Render, w.sinkID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read rows %d to %d: %w", b.From, b.To, err)
	}
	return rows, nil
}

// delivered keeps that the receiver has a delivery, together with the next one.
func (w *worker) delivered(ctx context.Context) error {
	b, next, position := w.note.Under, note{Item: w.note.Item, Next: w.note.Next}, w.at.Position
	if b.Item == "" {
		position = b.To
	} else if err := w.endPart(ctx, b, &next); err != nil {
		return err
	}
	position, err := w.begin(ctx, &next, position)
	if err != nil {
		return err
	}
	if err := w.keep(ctx, position, next, 0); err != nil {
		return err
	}
	if next.Under == nil {
		return errEnd
	}
	return nil
}

// failed keeps when a delivery is tried again, or gives it up.
func (w *worker) failed(ctx context.Context, cause error) error {
	b, next := *w.note.Under, w.note
	b.Attempts++
	b.Error = bounded(cause.Error())
	if b.Since == 0 {
		b.Since = w.r.micros()
	}
	w.r.metrics.failed(w.of.Way)
	if b.Attempts > len(w.r.o.Retries) {
		return w.giveUp(ctx, &b)
	}
	next.Under = &b
	wait := w.r.jitter(w.r.o.Retries[b.Attempts-1])
	return w.keep(ctx, w.at.Position, next, w.r.micros().Add(wait))
}

// giveUp records a delivery as FAILED and goes on behind it. The row comes first, under the delivery's own name: after
// a crash between the two it is recorded again as the same.
func (w *worker) giveUp(ctx context.Context, b *begun) error {
	if b.Item != "" {
		if err := w.failItem(ctx, b); err != nil {
			return err
		}
		return w.keep(ctx, w.at.Position, note{Failed: true}, 0)
	}
	if err := w.r.recordFailure(ctx, w.tenantID, w.sinkID, b); err != nil {
		return err
	}
	return w.keep(ctx, b.To, note{Failed: true}, 0)
}

// pause stops the sink for a receiver who wants no more. The delivery stays begun.
func (w *worker) pause(ctx context.Context, cause error) error {
	b, next := *w.note.Under, w.note
	b.Error = bounded(cause.Error())
	next.Under = &b
	if err := w.keep(ctx, w.at.Position, next, 0); err != nil {
		return err
	}
	if err := w.r.pauseGone(ctx, w.tenantID, w.sinkID); err != nil {
		return err
	}
	return errEnd
}

// keep makes where the sink stands durable. A position that moved over rows nobody asks for is kept once it is far
// enough from what is kept, so that an idle sink writes little.
func (w *worker) keep(ctx context.Context, position uint64, n note, due calendar.Micros) error {
	encoded, err := n.encode()
	if err != nil {
		return err
	}
	to := store.Standing{Position: position, Due: due, Note: encoded,
		Failing: n.Failed || n.Under != nil && n.Under.Attempts > 0}
	idle := n.Under == nil && w.note.Under == nil && n == w.note && due == w.at.Due
	if idle && position-w.at.Position < idleRows {
		return nil
	}
	if err := w.r.store.Advance(ctx, w.claim, to, w.r.o.ClaimTime); err != nil {
		return err
	}
	w.at, w.note = to, n
	return nil
}

// idleRows is how many rows that nobody asks for are passed over again after a restart, at most.
const idleRows = 10_000

// maxError bounds what is kept of an error.
const maxError = 500

func bounded(s string) string {
	if len(s) > maxError {
		s = s[:maxError]
	}
	return toValid(s)
}
