package postgres

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Plans are configuration and come with it. Which customer has which plan is not: there may be as many as customers, so that is read
// for the customers of a batch, like their counters, and remembered in the book like them.

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

func (c *config) putPlan(p *quota.Plan) {
	c.plans = set(c.plans, p.Name, quota.Compile(p))
	c.thresholds = 0
	for _, r := range c.plans {
		c.thresholds = max(c.thresholds, r.Thresholds())
	}
}

// tally asks for what all customers used of a meter.
func (w *wants) tally(h *history, id tallyID) {
	m := h.config.catalog.Number(id.meter)
	if !usage.AddsUp(m.Aggregation) || h.book.tallies[id] != nil || w.tallies[id] != nil {
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

// assigned asks for a customer's plan, if there are any plans.
func (w *wants) assigned(h *history, customer string) {
	if len(h.config.plans) == 0 {
		return
	}
	if _, known := h.book.assigned[customer]; known {
		return
	}
	if w.customers == nil {
		w.customers = map[string]string{}
	}
	if _, asked := w.customers[customer]; !asked {
		w.customers[customer] = ""
	}
}

// askQuotas adds the statements that read tallies and plans of customers.
func (w *wants) askQuotas(send func(*statement, func(*reader) error, ...[]byte), h *history) {
	id := []byte(h.tenantID)
	if len(w.tallies) > 0 {
		send(talliesByKey, func(in *reader) error {
			month, slug, used, alerted := in.month(), in.text(), in.amount(), uint16(in.int2())
			if number, ok := h.config.numberOf(slug); ok && in.err == nil {
				w.tallies[tallyID{number, month}].Tally = usage.Tally{Used: used, Alerted: alerted}
			}
			return in.err
		}, id, w.tallyMonth.param(), w.tallyMeter.param())
	}
	if len(w.customers) > 0 {
		send(assignmentsOf, func(in *reader) error {
			customer, plan := in.text(), in.text()
			w.customers[customer] = plan
			return in.err
		}, id, textsParam(slices.Collect(maps.Keys(w.customers))))
	}
}

// enterQuotas puts what was read into the book.
func (w *wants) enterQuotas(b *book) {
	maps.Copy(b.tallies, w.tallies)
	for customer, plan := range w.customers {
		b.assigned[owned(usage.CounterID{Customer: customer}).Customer] = plan
	}
}

func (h *history) Limit(slug, customer string) (*quota.Limit, error) {
	if len(h.config.plans) == 0 {
		return nil, nil //nolint:nilnil // no limit is no fault
	}
	if customer == "" {
		return h.config.plans[h.config.ownPlan].Limit(slug), nil
	}
	plan, known := h.book.assigned[customer]
	if !known {
		w := &wants{}
		w.assigned(h, customer)
		if err := h.fetch(w); err != nil {
			return nil, err
		}
		plan = h.book.assigned[customer]
	}
	return h.config.plans[plan].Limit(slug), nil
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
	c := h.book.tallies[id]
	if c == nil {
		w := &wants{}
		w.tally(h, id)
		if err := h.fetch(w); err != nil {
			return nil, err
		}
		c = h.book.tallies[id]
	}
	h.lastTally = c
	return c, nil
}

// tallied notes that a kept row changed the tallies of its meters.
func (h *history) tallied(r *usage.Row) {
	month := r.Month()
	for i := range r.Outcomes {
		number := r.Outcomes[i].Meter
		if !usage.AddsUp(h.config.catalog.Number(number).Aggregation) {
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
	due, err := usage.Alerts(h, row, most, nil)
	h.touched = h.touched[:0]
	for i := 0; i < len(due) && err == nil; i++ {
		c := ledger.AlertRow(&due[i])
		err = h.change(&c)
	}
	_ = h.fail(err) // the transaction is lost
	return len(due)
}

// tell raises the mark of a threshold that a row told of.
func (h *history) tell(a *quota.Alert) error {
	if a.Customer == "" {
		c, err := h.tally(tallyID{a.Meter, a.Month})
		if err != nil {
			return err
		}
		c.Told(a.Threshold)
		h.markTally(c)
		return nil
	}
	h.touched = h.touched[:0]
	counter, err := h.Counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	if err != nil {
		return err
	}
	counter.Told(a.Threshold)
	h.mark(h.touched[0])
	h.touched = h.touched[:0]
	return nil
}

func sendTallies(r *round, a *addition) {
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

func sendAssigned(r *round, tenantID string, assigned map[string]string) {
	if len(assigned) == 0 {
		return
	}
	var customer, plan array
	customer.reset(oidText)
	plan.reset(oidText)
	for name, of := range assigned {
		customer.text(name)
		plan.text(of)
	}
	r.send(putAssignments, nil, []byte(tenantID), customer.param(), plan.param())
}

func (v *view) Plan(name string) (quota.Plan, error) {
	r := v.config.plans[name]
	if r == nil {
		return quota.Plan{}, problem.New(problem.NotFound, "no plan %q", name)
	}
	return r.Plan.Clone(), nil
}

func (v *view) Plans(after string, limit int) ([]quota.Plan, error) {
	var out []quota.Plan
	for _, name := range page(v.config.plans, after, limit) {
		out = append(out, v.config.plans[name].Plan.Clone())
	}
	return out, nil
}

func (v *view) Assignment(customer string) (quota.Assignment, error) {
	a := quota.Assignment{Customer: customer, Plan: v.config.ownPlan}
	if customer == "" || !clean(customer) {
		return a, nil
	}
	a.Plan = ""
	if v.tx != nil {
		if plan, changed := v.tx.assigned[customer]; changed {
			a.Plan = plan
			return a, nil
		}
	}
	err := v.ask(assignmentsOf, func(in *reader) error {
		_, a.Plan = in.text(), in.text()
		return nil
	}, textsParam([]string{customer}))
	return a, err
}

func (v *view) Assignments(after string, limit int) ([]quota.Assignment, error) {
	if err := store.CheckPlace(after); err != nil {
		return nil, err
	}
	var own map[string]string // of an update
	if v.tx != nil {
		own = v.tx.assigned
	}
	var out []quota.Assignment
	err := v.ask(assignmentsAfter, func(in *reader) error {
		a := quota.Assignment{Customer: in.text(), Plan: in.text()}
		if _, changed := own[a.Customer]; !changed {
			out = append(out, a)
		}
		return nil
	}, []byte(after), int8Param(int64(limit+len(own))))
	if err != nil || own == nil {
		return out, err
	}
	for customer, plan := range own {
		if customer > after && plan != "" {
			out = append(out, quota.Assignment{Customer: customer, Plan: plan})
		}
	}
	slices.SortFunc(out, func(a, b quota.Assignment) int { return cmp.Compare(a.Customer, b.Customer) })
	return out[:min(limit, len(out))], nil
}

func (v *view) Tally(number uint32, m calendar.Month) (out usage.Tally, err error) {
	meter := v.config.catalog.Number(number)
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
