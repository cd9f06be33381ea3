package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// view reads one tenant inside a transaction: a reader's sees one moment, an update's holds the head, so that nothing moves.
type view struct {
	s        *Store
	ctx      context.Context
	c        *session
	tenantID string
	config   *config
	head     ledger.Head // with the rows of an update
	now      calendar.Micros
	base     uint64 // the last row in the tables
	tx       *tx    // nil for a reader
	fault    error  // the first failure of a read: the transaction is lost
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, tenantID string, fn func(store.View) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if !clean(tenantID) {
		return errNoTenant(tenantID)
	}
	var own error
	err := s.reading(ctx, roleServe, tenantID, func(ctx context.Context, c *session) error {
		var h head
		if err := c.ask(ctx, readHead, s.headFrom(&h), []byte(tenantID)); err != nil {
			return err
		}
		if !h.exists {
			return errNoTenant(tenantID)
		}
		config, _ := s.configs.get(tenantID)
		if config == nil || config.version != h.version {
			var err error
			if config, err = c.loadConfig(ctx, tenantID, h.version); err != nil {
				return err
			}
			s.configs.put(tenantID, config)
		}
		own = fn(&view{s: s, ctx: ctx, c: c, tenantID: tenantID, config: config, head: h.Head, now: h.now, base: h.Seq})
		return nil
	})
	if own != nil {
		return own
	}
	return err
}

// ask runs a statement. A failure is told as the port does, and kept.
func (v *view) ask(st *statement, each func(*reader) error, params ...[]byte) error {
	if v.fault == nil {
		v.fault = v.c.ask(v.ctx, st, each, append([][]byte{[]byte(v.tenantID)}, params...)...)
	}
	return v.s.told(v.ctx, v.fault)
}

func (v *view) Now() calendar.Micros { return v.now }
func (v *view) Head() ledger.Head    { return v.head }

func (v *view) Tenant() (tenant.Tenant, error) {
	if v.config.tenant == nil {
		return tenant.Tenant{}, errNoTenant(v.tenantID)
	}
	return ownTenant(v.config.tenant), nil
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
	out := store.Meter{Meter: *m, Used: v.config.used[m.Number]}
	out.KeyFields = slices.Clone(m.KeyFields)
	return out, nil
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
	var row ledger.Row
	var by []ledger.Row
	missing := problem.New(problem.NotFound, "no event %q", k.ID())
	if !clean(k.Name) {
		return row, nil, missing
	}
	err := v.ask(eventsByKey, v.each(func(r *ledger.Row) { row = *r }), textsParam([]string{string(rune(k.Space)) + k.Name}))
	if err != nil {
		return row, nil, err
	}
	if row.Event == nil {
		return row, nil, missing
	}
	err = v.ask(corrections, v.each(func(r *ledger.Row) { by = append(by, *r) }), textsParam([]string{k.ID()}))
	return row, by, err
}

// each reads events.
func (v *view) each(fn func(*ledger.Row)) func(*reader) error {
	return func(in *reader) error {
		r, err := readEvent(in, v.config)
		if err == nil {
			fn(&r)
		}
		return err
	}
}

func (v *view) Counter(id usage.CounterID) (usage.Counter, error) {
	c, err := v.cell(id)
	if err == nil {
		v.addPending(id, &c.Counter)
	}
	return c.Counter, err
}

// cell reads a counter as the table has it.
func (v *view) cell(id usage.CounterID) (*cell, error) {
	out := &cell{}
	m := v.config.catalog.Number(id.Meter)
	if m == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", id.Meter)
	}
	if !clean(id.Customer) {
		return out, nil
	}
	var at placeArrays
	at.reset()
	at.add(store.CounterPlace{Month: id.Month, Meter: m.Slug, Customer: id.Customer})
	err := v.ask(countersByKey, func(in *reader) (err error) {
		out, err = readCounter(in)
		return err
	}, at.month.param(), at.meter.param(), at.customer.param())
	return out, err
}

// addPending adds what an update has adjusted and not written yet.
func (v *view) addPending(id usage.CounterID, c *usage.Counter) {
	if v.tx == nil {
		return
	}
	if p := v.tx.manual[id]; !p.IsZero() {
		c.Adjust(p, v.config.catalog.Number(id.Meter).Aggregation, v.config.closed(id.Month))
	}
}

func (v *view) Adjustment(id string) (usage.Adjustment, error) {
	missing := problem.New(problem.NotFound, "no adjustment %q", id)
	seq, number, ok := usage.ParseAdjustmentID(id)
	if !ok || seq > v.head.Seq {
		return usage.Adjustment{}, missing
	}
	var row ledger.Row
	if err := v.between(seq-1, seq, store.RowHint{Events: true, Changes: true}, func(r *ledger.Row) { row = *r }); err != nil {
		return usage.Adjustment{}, err
	}
	if row.Event != nil {
		for i := range row.Event.Outcomes {
			if a, late := usage.LateAdjustment(row.Event, &row.Event.Outcomes[i], seq, row.At); late && a.Meter == number {
				return a, nil
			}
		}
		return usage.Adjustment{}, missing
	}
	if row.Change == nil {
		if v.mayHaveLeft(seq) {
			return usage.Adjustment{}, missing // adjusted rows stay
		}
		return usage.Adjustment{}, v.missing(seq)
	}
	s, err := ledger.DecodeState(&row)
	if err != nil || s.Adjustment == nil || number != 0 {
		return usage.Adjustment{}, missing
	}
	a := *s.Adjustment
	var undone uint64
	if v.tx != nil {
		undone = v.tx.undone[seq]
	}
	if undone == 0 {
		err = v.ask(changeReverts, func(in *reader) error { undone = uint64(in.int8()); return nil }, []byte(id))
	}
	if undone != 0 {
		a.Reverted = usage.ManualID(undone)
	}
	return a, err
}

func (v *view) Period(m calendar.Month) (usage.Period, error) {
	if p, ok := v.config.periods[m]; ok {
		return p, nil
	}
	return usage.Period{Month: m}, nil
}
