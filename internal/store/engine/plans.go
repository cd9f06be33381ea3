package engine

import (
	"strings"
	"sync"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// # Plans of customers
//
// Which plans a customer has, and from when on, is asked for every fact of a tenant that has plans, and there may be as
// many answers as customers. Which of them is in force is found by the time that the fact is judged at, so that one
// that was dated ahead comes into force by itself. They are entities like others, in the state; the decider remembers
// those that it asked for last, and that a customer has none. Reading one from the state is left to the callers, as
// with counters that are not in memory (fetch.go): a batch brings the plans along that are not remembered. One that was
// brought along is used only if the notes have none that is newer and no checkpoint has ended since it was read: then
// the state still says the same.

// maxAssigned is how many customers of a tenant are remembered since the last time that there were so many.
const maxAssigned = 32 << 10

// assigned remembers the plans of customers, nil of one that has none and of the tenant itself under "". When recent is
// full it becomes older, and older is forgotten: what was asked for last is never forgotten first.
type assigned struct {
	limit         int          // of recent
	mu            sync.RWMutex // guards the maps. The decider writes them, and reads them without it
	recent, older map[string]quota.Schedule
}

// find returns plans that are remembered. The decider calls it.
func (a *assigned) find(customer string) (plans quota.Schedule, ok bool) {
	if plans, ok = a.recent[customer]; ok {
		return plans, true
	}
	if plans, ok = a.older[customer]; ok {
		a.put(customer, plans)
	}
	return plans, ok
}

// put remembers plans. The decider calls it.
func (a *assigned) put(customer string, plans quota.Schedule) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.recent) >= a.limit || a.recent == nil {
		a.recent, a.older = map[string]quota.Schedule{}, a.recent
	}
	a.recent[strings.Clone(customer)] = plans
}

// has reports whether the customer's plans are remembered. Anybody may call it.
func (a *assigned) has(customer string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, recent := a.recent[customer]
	_, older := a.older[customer]
	return recent || older
}

// fetchedPlans are the plans that a batch brought along, by customer.
type fetchedPlans struct {
	plans map[string]quota.Schedule
	done  uint64 // the last complete checkpoint, before they were read
}

// fetchPlans reads the plans that the batch will need and that are not remembered. One that cannot be read is left for
// judging.
func (e *Engine) fetchPlans(w *work, hasPlans bool) {
	w.plans = fetchedPlans{done: e.cells.done.Load()}
	if !hasPlans {
		return
	}
	e.fetchPlan(w, "")
	for i := range w.facts {
		if f := &w.facts[i]; f.Refusal == nil && f.Event.Corrects == "" && !f.found.OK {
			e.fetchPlan(w, f.Event.Customer)
		}
	}
}

func (e *Engine) fetchPlan(w *work, customer string) {
	if _, ok := w.plans.plans[customer]; ok || w.book.assigned.has(customer) {
		return
	}
	plans, err := e.readPlans(w.book, customer)
	if err != nil {
		return
	}
	if w.plans.plans == nil {
		w.plans.plans = map[string]quota.Schedule{}
	}
	w.plans.plans[customer] = plans
}

// readPlans is the plans that the state has for a customer.
func (e *Engine) readPlans(b *book, customer string) (quota.Schedule, error) {
	found, ok, err := e.state.Entity(b.number, quota.AssignmentKind.Name, quota.AssignmentID(customer))
	if err != nil || !ok {
		return nil, err
	}
	a, err := quota.AssignmentKind.Read(&found.Entity)
	return a.Plans, err
}

// Limit implements usage.State.
func (h *history) Limit(slug, customer string, now calendar.Micros) (*quota.Limit, error) {
	if !h.b.resident.HasPlans() {
		return nil, nil //nolint:nilnil // no limit
	}
	plans, ok := h.b.assigned.find(customer)
	if !ok {
		var err error
		if plans, err = h.plansOf(customer); err != nil {
			return nil, err
		}
		h.b.assigned.put(customer, plans)
	}
	return h.b.resident.Limit(plans.At(now).Plan, slug), nil
}

// plansOf finds plans that are not remembered. Engine.mu is held.
func (h *history) plansOf(customer string) (quota.Schedule, error) {
	if n := h.e.recentEntity(h.b, quota.AssignmentKind.Name, quota.AssignmentID(customer)); n != nil {
		a, err := quota.AssignmentKind.Read(&n.Entity.Entity)
		return a.Plans, err
	}
	if h.plans != nil && h.plans.done == h.e.cells.done.Load() {
		if plans, ok := h.plans.plans[customer]; ok {
			return plans, nil
		}
	}
	return h.e.readPlans(h.b, customer)
}

// assign remembers the plans that a change gives a customer. Engine.mu is held.
func (b *book) assign(e *entity.Entity) error {
	a, err := quota.AssignmentKind.ReadIf(e)
	if a != nil && err == nil {
		b.assigned.put(a.Customer, a.Plans)
	}
	return err
}
