package engine

import (
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/keyindex"
)

// view reads a book. A reader's view is of what was durable when it began; what it reads from memory it returns only when
// that is durable too. A transaction's view is of what is decided, its own rows included.
type view struct {
	e      *Engine
	b      *book
	config *config
	head   ledger.Head
	now    calendar.Micros
	tx     *tx // nil for a reader
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

// locked runs fn under the lock and returns the last group that changed the book. A panic in fn must not leave the lock held: whoever
// recovers from it goes on serving.
func (v *view) locked(fn func() error) (*group, error) {
	v.e.mu.RLock()
	defer v.e.mu.RUnlock()
	err := fn()
	return v.b.undurable, err
}

func (v *view) Now() calendar.Micros { return v.now }
func (v *view) Head() ledger.Head    { return v.head }

func (v *view) Tenant() (tenant.Tenant, error) {
	if v.config.tenant == nil {
		return tenant.Tenant{}, errNoTenant(v.b.id)
	}
	t := *v.config.tenant
	t.AllowedOrigins = slices.Clone(t.AllowedOrigins)
	return t, nil
}

func (v *view) APIKey(id string) (tenant.APIKey, error) {
	if k := v.config.keys[id]; k != nil {
		return *k, nil
	}
	return tenant.APIKey{}, problem.New(problem.NotFound, "no API key %q", id)
}

func (v *view) APIKeys(after string, limit int) ([]tenant.APIKey, error) {
	var out []tenant.APIKey
	for _, id := range page(v.config.keys, after, limit) {
		out = append(out, *v.config.keys[id])
	}
	return out, nil
}

func (v *view) Meter(slug string) (store.Meter, error) {
	m := v.config.meters[slug]
	if m == nil {
		return store.Meter{}, problem.New(problem.NotFound, "no meter %q", slug)
	}
	out := store.Meter{Meter: *m}
	out.KeyFields = slices.Clone(m.KeyFields)
	err := v.settled(func() error {
		out.Used = v.b.meters[m.Number].Used
		return nil
	})
	return out, err
}

func (v *view) Meters(after string, limit int) ([]store.Meter, error) {
	var out []store.Meter
	for _, slug := range page(v.config.meters, after, limit) {
		m, err := v.Meter(slug)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

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
	if row.Event == nil || row.Event.Key != k {
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

// find looks for a fact and for the rows that correct it. Files are read without the lock: what a checkpoint moves into them meanwhile
// is then seen twice, not missed.
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
		return cloneRow(r), nil
	}
	var d decoder
	s, err := v.e.readSection(v.b, seq, &d, v.config.catalog)
	if err != nil {
		return ledger.Row{}, err
	}
	r, err := v.b.found(&s, seq)
	if err != nil {
		return ledger.Row{}, err
	}
	return cloneRow(r), nil
}

// rowDecided also finds the transaction's own rows and those of the group being decided.
func (x *tx) rowDecided(seq uint64) (*ledger.Row, error) {
	if own := x.section.first + uint64(len(x.section.rows)); seq >= own {
		return &x.rows[seq-own], nil
	}
	return x.e.rowForJudging(x.b, seq)
}

func cloneRow(r *ledger.Row) ledger.Row {
	out := *r
	if r.Change != nil {
		c := *r.Change
		for _, s := range []*string{&c.Type, &c.Source, &c.Actor, &c.EntityType, &c.EntityID, &c.Payload} {
			*s = strings.Clone(*s)
		}
		c.State = slices.Clone(c.State)
		out.Change = &c
		return out
	}
	out.Event = r.Event.Clone()
	return out
}

func (v *view) Adjustment(id string) (usage.Adjustment, error) {
	missing := problem.New(problem.NotFound, "no adjustment %q", id)
	seq, number, ok := usage.ParseAdjustmentID(id)
	if !ok || seq == 0 || seq > v.head.Seq {
		return usage.Adjustment{}, missing
	}
	r, err := v.row(seq)
	if problem.Is(err, problem.Archived) {
		return usage.Adjustment{}, missing // adjusted rows stay
	}
	if err != nil {
		return usage.Adjustment{}, err
	}
	if r.Event != nil {
		for i := range r.Event.Outcomes {
			if a, late := usage.LateAdjustment(r.Event, &r.Event.Outcomes[i], seq, r.At); late && a.Meter == number {
				return a, nil
			}
		}
		return usage.Adjustment{}, missing
	}
	s, err := ledger.DecodeState(&r)
	if err != nil {
		return usage.Adjustment{}, err
	}
	if s.Adjustment == nil || number != 0 {
		return usage.Adjustment{}, missing
	}
	a := *s.Adjustment
	by, err := v.reverted(seq)
	if by != 0 {
		a.Reverted = usage.ManualID(by)
	}
	return a, err
}

// reverted returns the row that undid an adjustment, or 0.
func (v *view) reverted(seq uint64) (by uint64, err error) {
	if v.tx != nil && v.tx.undone[seq] != 0 {
		return v.tx.undone[seq], nil
	}
	err = v.settled(func() error {
		for _, n := range v.e.notes {
			if by = n.reverted[rowKey{v.b, seq}]; by != 0 {
				return nil
			}
		}
		return nil
	})
	if err != nil || by != 0 {
		return by, err
	}
	return v.e.state.Reverted(v.b.number, seq) // without the lock, like a counter
}

func (v *view) Period(m calendar.Month) (usage.Period, error) {
	if p, ok := v.config.periods[m]; ok {
		return p, nil
	}
	return usage.Period{Month: m}, nil
}

func (v *view) Periods(from calendar.Month, limit int) ([]usage.Period, error) {
	months := map[calendar.Month]bool{}
	for m := range v.config.periods {
		months[m] = true
	}
	cells, err := v.dirtyCells()
	if err != nil {
		return nil, err
	}
	for _, c := range cells {
		months[c.id.Month] = true
	}
	for m := from; ; m++ {
		next, ok, err := v.e.state.NextMonth(v.b.number, m)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		months[next], m = true, next
	}
	var out []usage.Period
	for _, m := range slices.Sorted(maps.Keys(months)) {
		if m >= from && len(out) < limit {
			p, _ := v.Period(m)
			out = append(out, p)
		}
	}
	return out, nil
}

// pending is what the transaction itself added by hand.
func (v *view) pending(id usage.CounterID) amount.Amount {
	if v.tx == nil {
		return amount.Zero
	}
	return v.tx.manual[id]
}
