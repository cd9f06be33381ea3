package naive

import (
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
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

func (v view) Entity(kind, id string) (entity.Entity, error) {
	return v.EntityAt(kind, id, v.t.head.Seq)
}

func (v view) EntityAt(kind, id string, seq uint64) (entity.Entity, error) {
	rows := v.t.entities[entityName{kind, id}]
	for i := len(rows) - 1; i >= 0; i-- {
		e := v.t.rows[rows[i]].Entity()
		entry, err := v.t.kinds.Entry(&e)
		if err != nil {
			return entity.Entity{}, err
		}
		if e.Seq <= seq && entry.Keep && (entry.Expires == 0 || seq == v.t.head.Seq) {
			e.Data = slices.Clone(e.Data)
			return e, nil
		}
	}
	return entity.Entity{}, store.NoEntity(kind, id)
}

func (v view) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	return v.list(kind, p, func(*entity.Entry) bool { return true })
}

func (v view) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	if err := store.CheckPlace(t.Index, t.Value); err != nil {
		return nil, err
	}
	return v.list(kind, p, func(e *entity.Entry) bool { return slices.Contains(e.Terms, t) })
}

func (v view) list(kind string, p store.Page, wants func(*entity.Entry) bool) ([]entity.Entity, error) {
	if err := store.CheckPlace(kind, p.After); err != nil {
		return nil, err
	}
	var out []entity.Entity
	for name := range v.t.entities {
		if name.kind != kind || !p.Holds(name.id) {
			continue
		}
		e, err := v.Entity(kind, name.id)
		if err != nil {
			continue // nothing of it is kept
		}
		entry, err := v.t.kinds.Entry(&e)
		if err != nil {
			return nil, err
		}
		if wants(&entry) {
			out = append(out, e)
		}
	}
	return p.Cut(out), nil
}

func (v view) MeterUsed(number uint32) (bool, error) {
	for i := range v.t.rows {
		if r := v.t.rows[i].Event; r != nil {
			for _, o := range r.Outcomes {
				if o.Meter == number {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

func (v view) Event(k usage.Key) (ledger.Row, []ledger.Row, error) {
	i, ok := v.t.keys[k]
	if !ok {
		return ledger.Row{}, nil, problem.New(problem.NotFound, "no event %q", k.ID())
	}
	var corrections []ledger.Row
	for j := range v.t.rows {
		if r := v.t.rows[j].Event; r != nil && r.Corrects == k.ID() && !v.t.gone[v.t.rows[j].Seq] {
			corrections = append(corrections, v.t.rows[j].Clone())
		}
	}
	return v.t.rows[i].Clone(), corrections, nil
}

func (v view) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (uint64, bool, error) {
	if err := v.t.resident.Horizon.Missing(after, hint, v.t.hasLeft); err != nil {
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
	if v.t.Catalog().Number(id.Meter) == nil {
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
		p := store.CounterPlace{Month: id.Month, Meter: v.t.Catalog().Number(id.Meter).Slug, Customer: id.Customer}
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

func (v view) Months(from calendar.Month, limit int) ([]calendar.Month, error) {
	months := map[calendar.Month]bool{}
	for id := range v.t.counters {
		if id.Month >= from {
			months[id.Month] = true
		}
	}
	out := slices.Sorted(maps.Keys(months))
	return out[:min(limit, len(out))], nil
}

// tx is a view that can append.
type tx struct{ view }

func (x *tx) Append(c ledger.Change) (uint64, error) {
	if err := x.t.resident.CheckKeptHere(); err != nil {
		return 0, err
	}
	c.State.Data = slices.Clone(c.State.Data)
	if err := x.t.change(ledger.Row{At: x.now, Change: &c}); err != nil {
		return 0, err
	}
	return x.t.head.Seq, nil
}

// Hours implements store.View: nothing is added up, the rows say it.
func (v view) Hours(store.HourQuery, func(*store.Hour) error) (uint64, bool, error) {
	return 0, false, nil
}

func (v view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	if v.t.Catalog().Number(q.Meter) == nil {
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
