package engine

import (
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/resident"
)

// view reads a book. A reader's view is of what was durable when it began; what it reads from memory it returns only
// when that is durable too. A transaction's view is of what is decided, its own rows included.
type view struct {
	e        *Engine
	b        *book
	from     *state.Reader
	frozen   bool // it is of a checkpoint: what is in memory is not looked at
	resident *resident.Set
	head     ledger.Head
	now      calendar.Micros
	tx       *tx    // nil for a reader
	recall   recall // of a reader
}

// settled runs fn on the state in memory and, for a reader, waits until what it saw is durable.
func (v *view) settled(fn func() error) error {
	if v.tx != nil {
		return fn()
	}
	g, err := v.locked(fn)
	if err != nil || g == nil {
		return err
	}
	select {
	case <-g.done:
		return nil
	case <-v.e.failed:
		return v.e.errFailed()
	}
}

// locked runs fn under the lock and returns the last group that changed the book. A panic in fn must not leave the
// lock held: whoever recovers from it goes on serving.
func (v *view) locked(fn func() error) (*group, error) {
	v.e.mu.RLock()
	defer v.e.mu.RUnlock()
	err := fn()
	return v.b.undurable, err
}

func (v *view) Now() calendar.Micros { return v.now }
func (v *view) Head() ledger.Head    { return v.head }

// page lists the names above after, in order.
func page[T any](m map[string]T, after string, limit int) []string {
	names := slices.Sorted(maps.Keys(m))
	i, found := slices.BinarySearch(names, after)
	if found {
		i++
	}
	return names[i:min(len(names), i+limit)]
}

func (v *view) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	found, seqs, err := v.find(k)
	missing := problem.New(problem.NotFound, "no event %q", k.ID())
	if err != nil {
		return ledger.Row{}, nil, err
	}
	if !found.OK {
		return ledger.Row{}, nil, missing
	}
	row, err := v.row(found.Seq)
	if err != nil {
		return ledger.Row{}, nil, err
	}
	if row.Kind() != ledger.EventRow || row.Event.Key != k {
		return ledger.Row{}, nil, missing
	}
	var corrections []ledger.Row
	for _, seq := range seqs {
		r, err := v.row(seq)
		if err != nil {
			return ledger.Row{}, nil, err
		}
		corrections = append(corrections, r)
	}
	return row, corrections, nil
}

// find looks for a fact and for the rows that correct it. Files are read without the lock: what a checkpoint moves
// into them meanwhile is then seen twice, not missed.
func (v *view) find(k usage.Key) (found keyindex.Found, corrections []uint64, err error) {
	var h hasher
	hashes, probed := []keyindex.Hash{h.key(v.e.index.Seed(), v.b.number, k)}, make([]keyindex.Found, 1)
	at, err := v.e.index.Probe(hashes, probed)
	if err != nil {
		return found, nil, err
	}
	var recent []uint64
	err = v.settled(func() (err error) {
		for _, n := range v.e.notes {
			recent = append(recent, n.corrections[factKey{v.b, k}]...)
		}
		found, err = v.e.index.Lookup(hashes[0], probed[0], at)
		return err
	})
	if err != nil || !found.OK {
		return found, nil, err
	}
	corrections, err = v.e.state.Corrections(v.b.number, k)
	corrections = append(corrections, recent...)
	slices.Sort(corrections)
	return found, slices.Compact(corrections), err
}

// row reads one row and gives it memory of its own.
func (v *view) row(seq uint64) (ledger.Row, error) {
	if v.tx != nil {
		r, err := v.tx.rowDecided(seq)
		if err != nil {
			return ledger.Row{}, err
		}
		return r.Clone(), nil
	}
	s := v.recall.find(v.b, seq)
	if s == nil {
		v.e.metrics.sectionsRead.Inc()
		var err error
		if s, err = v.e.readInto(&v.recall, v.b, seq, v.resident); err != nil {
			return ledger.Row{}, err
		}
	}
	r, err := v.b.found(&s.section, seq)
	if err != nil {
		return ledger.Row{}, err
	}
	return r.Clone(), nil
}

// rowDecided also finds the transaction's own rows and those of the group being decided.
func (x *tx) rowDecided(seq uint64) (*ledger.Row, error) {
	if own := x.section.first + uint64(len(x.section.rows)); seq >= own {
		return &x.rows[seq-own], nil
	}
	return x.e.rowForJudging(x.b, seq)
}

// Months implements store.View.
func (v *view) Months(from calendar.Month, limit int) ([]calendar.Month, error) {
	months := map[calendar.Month]bool{}
	if !v.frozen {
		dirty, err := v.dirtyPlaces(store.CounterPlace{Month: from})
		if err != nil {
			return nil, err
		}
		for _, p := range dirty {
			months[p.Month] = true
		}
	}
	for m := from; ; m++ {
		next, ok, err := v.from.NextMonth(v.b.number, m)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		months[next], m = true, next
	}
	out := slices.Sorted(maps.Keys(months))
	return out[:min(max(limit, 0), len(out))], nil
}
