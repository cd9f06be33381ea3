package naive

import (
	"slices"
	"sort"
	"strings"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// view reads one book while the store's lock is held.
type view struct {
	t   *book
	now calendar.Micros
}

func (v view) Now() calendar.Micros { return v.now }
func (v view) Head() ledger.Head    { return v.t.head }

func (v view) Tenant() (tenant.Tenant, error) {
	if v.t.config.tenant == nil {
		return tenant.Tenant{}, problem.New(problem.NotFound, "no such tenant")
	}
	return *v.t.config.tenant, nil
}

func (v view) APIKey(id string) (tenant.APIKey, error) {
	k, ok := v.t.config.keys[id]
	if !ok {
		return k, problem.New(problem.NotFound, "no API key %q", id)
	}
	return k, nil
}

func (v view) Meter(slug string) (store.Meter, error) {
	m, ok := v.t.config.meters[slug]
	if !ok {
		return store.Meter{}, problem.New(problem.NotFound, "no meter %q", slug)
	}
	return v.meter(m), nil
}

func (v view) meter(m *meter.Meter) store.Meter {
	out := store.Meter{Meter: *m, Used: v.used(m.Number)}
	out.KeyFields = slices.Clone(m.KeyFields)
	return out
}

func (v view) used(number uint32) bool {
	for i := range v.t.rows {
		if r := v.t.rows[i].Event; r != nil {
			for _, o := range r.Outcomes {
				if o.Meter == number {
					return true
				}
			}
		}
	}
	return false
}

func (v view) APIKeys(after string, limit int) ([]tenant.APIKey, error) {
	var out []tenant.APIKey
	for id, k := range v.t.config.keys {
		if id > after {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b tenant.APIKey) int { return strings.Compare(a.ID, b.ID) })
	return out[:min(limit, len(out))], nil
}

func (v view) Meters(after string, limit int) ([]store.Meter, error) {
	var out []store.Meter
	for slug, m := range v.t.config.meters {
		if slug > after {
			out = append(out, v.meter(m))
		}
	}
	slices.SortFunc(out, func(a, b store.Meter) int { return strings.Compare(a.Slug, b.Slug) })
	return out[:min(limit, len(out))], nil
}

func (v view) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	i, ok := v.t.keys[k]
	if !ok {
		return ledger.Row{}, nil, problem.New(problem.NotFound, "no event %q", k.ID())
	}
	var corrections []ledger.Row
	for j := range v.t.rows {
		if r := v.t.rows[j].Event; r != nil && r.Corrects == k.ID() && !v.t.gone[v.t.rows[j].Seq] {
			corrections = append(corrections, own(&v.t.rows[j]))
		}
	}
	return own(&v.t.rows[i]), corrections, nil
}

// own gives an event row memory that the caller may do with as it likes.
func own(r *ledger.Row) ledger.Row {
	out := *r
	out.Event = r.Event.Clone()
	return out
}

func (v view) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	if err := v.t.config.horizon.Missing(after, hint, v.t.hasLeft); err != nil {
		return after, false, err
	}
	for i := after; i < uint64(len(v.t.rows)); i++ {
		if !v.t.gone[i+1] && !fn(&v.t.rows[i]) {
			return i + 1, false, nil
		}
	}
	return max(after, v.t.head.Seq), true, nil
}

func (v view) sections(first uint64, fn func(*ledger.Section) error) error {
	for i, from := range v.t.sections {
		end := v.t.head.Seq + 1
		if i+1 < len(v.t.sections) {
			end = v.t.sections[i+1]
		}
		if end <= first {
			continue
		}
		rows := v.t.rows[from-1 : end-1]
		if err := fn(&ledger.Section{First: from, At: rows[0].At, Rows: rows}); err != nil {
			return err
		}
	}
	return nil
}

func (v view) Counter(id usage.CounterID) (usage.Counter, error) {
	if v.t.Meter(id.Meter) == nil {
		return usage.Counter{}, problem.New(problem.NotFound, "no meter of that number")
	}
	c, err := v.t.Counter(id)
	return *c, err
}

func (v view) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	if err := store.CheckPlace(from.Meter, from.Customer); err != nil {
		return err
	}
	ids := map[store.CounterPlace]usage.CounterID{}
	var places []store.CounterPlace
	for id := range v.t.counters {
		p := store.CounterPlace{Month: id.Month, Meter: v.t.Meter(id.Meter).Slug, Customer: id.Customer}
		if byPlace(p, from) >= 0 {
			ids[p] = id
			places = append(places, p)
		}
	}
	slices.SortFunc(places, byPlace)
	for _, p := range places {
		c, err := v.t.Counter(ids[p])
		if err != nil {
			return err
		}
		if !fn(p, c) {
			return nil
		}
	}
	return nil
}

func (v view) Adjustment(id string) (usage.Adjustment, error) {
	missing := problem.New(problem.NotFound, "no adjustment %q", id)
	seq, number, ok := usage.ParseAdjustmentID(id)
	if !ok || seq == 0 || seq > v.t.head.Seq {
		return usage.Adjustment{}, missing
	}
	r := &v.t.rows[seq-1]
	if v.t.gone[seq] {
		return usage.Adjustment{}, missing // adjusted rows stay
	}
	if r.Event != nil {
		for i := range r.Event.Outcomes {
			if a, late := usage.LateAdjustment(r.Event, &r.Event.Outcomes[i], seq, r.At); late && a.Meter == number && a.ID == id {
				return a, nil
			}
		}
		return usage.Adjustment{}, missing
	}
	s, err := ledger.DecodeState(r)
	if err != nil || s.Adjustment == nil || number != 0 {
		return usage.Adjustment{}, missing
	}
	a := *s.Adjustment
	for i := range v.t.rows {
		if v.t.rows[i].Change == nil {
			continue
		}
		if o, err := ledger.DecodeState(&v.t.rows[i]); err == nil && o.Adjustment != nil && o.Adjustment.Reverts == id {
			a.Reverted = o.Adjustment.ID
		}
	}
	return a, nil
}

func (v view) Periods(from calendar.Month, limit int) ([]usage.Period, error) {
	months := map[calendar.Month]bool{}
	for id := range v.t.counters {
		months[id.Month] = true
	}
	for m := range v.t.config.periods {
		months[m] = true
	}
	var out []usage.Period
	for m := range months {
		if m >= from {
			p, _ := v.Period(m)
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Month < out[j].Month })
	return out[:min(limit, len(out))], nil
}

func (v view) Period(m calendar.Month) (usage.Period, error) {
	if p, ok := v.t.config.periods[m]; ok {
		return p, nil
	}
	return usage.Period{Month: m}, nil
}

// tx is a view that can append.
type tx struct{ view }

func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.t.config.tenant.CheckKeptHere(); err != nil {
		return 0, err
	}
	r := ledger.Row{At: x.now, Change: &c}
	if _, err := ledger.DecodeState(&r); err != nil {
		return 0, err
	}
	x.t.keep(r)
	return x.t.head.Seq, nil
}

func (v view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	if v.t.Meter(q.Meter) == nil {
		return problem.New(problem.NotFound, "no meter of that number")
	}
	return store.ScanSlice(v, q, fn)
}

func (v view) AuditEvents(q store.AuditQuery) ([]ledger.Row, error) {
	var out []ledger.Row
	for i := len(v.t.rows) - 1; i >= 0 && len(out) < q.Limit; i-- {
		r := v.t.rows[i]
		if !q.Wants(&r) {
			continue
		}
		if q.Offset > 0 {
			q.Offset--
			continue
		}
		r.Change = &ledger.Change{Event: r.Change.Event}
		out = append(out, r)
	}
	return out, nil
}

func (v view) Request(key string) (request.Stored, error) {
	for i := len(v.t.rows) - 1; i >= 0; i-- {
		r := &v.t.rows[i]
		if r.Change == nil || r.Change.EntityType != audit.EntityRequest || r.Change.EntityID != key {
			continue
		}
		s, err := ledger.DecodeState(r)
		return *s.Request, err
	}
	return request.Stored{}, problem.New(problem.NotFound, "no request %q", key)
}
