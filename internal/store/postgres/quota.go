package postgres

import (
	"maps"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Plans are resident. Which customer has which plan is not: there may be as many as customers, so that is read for the
// customers of a batch, like their counters, and remembered like them.

type tallyID struct {
	meter uint32
	month calendar.Month
}

// tallyCell is a tally in memory.
type tallyCell struct {
	usage.Tally
	id    tallyID
	slug  string
	dirty bool
}

// tally asks for what all customers used of a meter.
func (w *wants) tally(h *history, id tallyID) {
	m := h.set.Catalog.Number(id.meter)
	if !usage.AddsUp(m.Aggregation) || h.cache.tallies[id] != nil || w.tallies[id] != nil {
		return
	}
	if w.tallies == nil {
		w.tallies = map[tallyID]*tallyCell{}
		w.tallyMonth.reset(oidDate)
		w.tallyMeter.reset(oidText)
	}
	w.tallies[id] = &tallyCell{id: id, slug: m.Slug}
	w.tallyMonth.month(id.month)
	w.tallyMeter.text(m.Slug)
}

// plan asks for a customer's plans, or those of the tenant itself for no customer, if there are any plans.
func (w *wants) plan(h *history, customer string) {
	if !h.set.HasPlans() {
		return
	}
	if _, known := h.cache.plans[customer]; known {
		return
	}
	if w.plans == nil {
		w.plans = map[string]quota.Schedule{}
	}
	if _, asked := w.plans[customer]; !asked {
		w.plans[customer] = nil
	}
}

// askQuotas adds the statements that read tallies and plans of customers.
func (w *wants) askQuotas(send func(*statement, func(*reader) error, ...[]byte), h *history) {
	id := []byte(h.tenantID)
	if len(w.tallies) > 0 {
		send(talliesByKey, func(in *reader) error {
			month, slug, used, alerted := in.month(), in.text(), in.amount(), uint16(in.int2())
			if number, ok := h.set.numberOf(slug); ok && in.err == nil {
				w.tallies[tallyID{number, month}].Tally = usage.Tally{Used: used, Alerted: alerted}
			}
			return in.err
		}, id, w.tallyMonth.param(), w.tallyMeter.param())
	}
	if len(w.plans) == 0 {
		return
	}
	var ids []string
	for customer := range w.plans {
		ids = append(ids, quota.AssignmentID(customer))
	}
	send(entitiesByID, func(in *reader) error {
		e := readEntity(in)
		if in.err != nil {
			return in.err
		}
		a, err := quota.AssignmentKind.Read(&e)
		w.plans[a.Customer] = a.Plans
		return err
	}, id, []byte(quota.AssignmentKind.Name), textsParam(ids))
}

// enterQuotas puts what was read into the cache.
func (w *wants) enterQuotas(b *cache) {
	maps.Copy(b.tallies, w.tallies)
	for customer, plans := range w.plans {
		b.plans[owned(usage.CounterID{Customer: customer}).Customer] = plans
	}
}

// remember keeps what is remembered of plans true after a change.
func (h *history) remember(e *entity.Entity) error {
	a, err := quota.AssignmentKind.ReadIf(e)
	if err == nil && a != nil {
		h.cache.plans[a.Customer] = a.Plans
	}
	return err
}

func (h *history) Limit(slug, customer string, now calendar.Micros) (*quota.Limit, error) {
	if !h.set.HasPlans() {
		return nil, nil //nolint:nilnil // no limit is no fault
	}
	plans, known := h.cache.plans[customer]
	if !known {
		w := &wants{}
		w.plan(h, customer)
		if err := h.fetch(w); err != nil {
			return nil, err
		}
		plans = h.cache.plans[customer]
	}
	return h.set.Limit(plans.At(now).Plan, slug), nil
}

func (h *history) Tally(number uint32, m calendar.Month) (*usage.Tally, error) {
	c, err := h.tally(tallyID{number, m})
	if err != nil {
		return nil, err
	}
	return &c.Tally, nil
}

func (h *history) tally(id tallyID) (*tallyCell, error) {
	if c := h.lastTally; c != nil && c.id == id {
		return c, nil
	}
	c := h.cache.tallies[id]
	if c == nil {
		w := &wants{}
		w.tally(h, id)
		if err := h.fetch(w); err != nil {
			return nil, err
		}
		c = h.cache.tallies[id]
	}
	h.lastTally = c
	return c, nil
}

// tallied notes that a kept row changed the tallies of its meters.
func (h *history) tallied(r *usage.Row) {
	month := r.Month()
	for i := range r.Outcomes {
		number := r.Outcomes[i].Meter
		if !usage.AddsUp(h.set.Catalog.Number(number).Aggregation) {
			continue
		}
		if c, err := h.tally(tallyID{number, month}); err == nil { // the rules have just had it
			h.markTally(c)
		}
	}
}

func (h *history) markTally(c *tallyCell) {
	if !c.dirty {
		c.dirty = true
		h.tallies = append(h.tallies, c)
	}
}

// alert adds the alerts that a kept row makes due, and returns how many.
func (h *history) alert(row *usage.Row, most int) int {
	due, err := ledger.Alerts(h, row, h.now, most, nil)
	h.touched = h.touched[:0]
	for i := 0; i < len(due) && err == nil; i++ {
		err = h.change(&due[i])
	}
	_ = h.fail(err) // the transaction is lost
	return len(due)
}

func sendTallies(r *roundTrip, a *addition) {
	if len(a.tallies) == 0 {
		return
	}
	var month, meter, used, alerted array
	month.reset(oidDate)
	meter.reset(oidText)
	used.reset(oidNumeric)
	alerted.reset(oidInt2)
	for _, c := range a.tallies {
		month.month(c.id.month)
		meter.text(c.slug)
		used.amount(c.Used)
		alerted.int2(int16(c.Alerted))
	}
	r.send(putTallies, nil, []byte(a.tenantID), month.param(), meter.param(), used.param(), alerted.param())
}

func (v *view) Tally(number uint32, m calendar.Month) (out usage.Tally, err error) {
	meter := v.set.Catalog.Number(number)
	if meter == nil {
		return out, problem.New(problem.NotFound, "no meter of number %d", number)
	}
	var months, slugs array
	months.reset(oidDate)
	months.month(m)
	slugs.reset(oidText)
	slugs.text(meter.Slug)
	err = v.ask(talliesByKey, func(in *reader) error {
		in.skip(2)
		out = usage.Tally{Used: in.amount(), Alerted: uint16(in.int2())}
		return nil
	}, months.param(), slugs.param())
	return out, err
}
