package engine

import (
	"strings"
	"sync"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/quota"
)

// # Plans of customers
//
// Which plan a customer has is asked for every fact of a tenant that has plans, and there may be as many answers as
// customers. They are entities like others, in the state; the decider remembers those that it asked for last, and that
// a customer has none. Reading one from the state is left to the callers, as with counters that are not in memory
// (fetch.go): a batch brings the plans along that are not remembered. One that was brought along is used only if the
// notes have none that is newer and no checkpoint has ended since it was read: then the state still says the same.

// maxAssigned is how many customers of a tenant are remembered since the last time that there were so many.
const maxAssigned = 32 << 10

// assigned remembers the plans of customers, "" of one that has none and of the tenant itself under "". When recent is
// full it becomes older, and older is forgotten: what was asked for last is never forgotten first.
type assigned struct {
	limit         int          // of recent
	mu            sync.RWMutex // guards the maps. The decider writes them, and reads them without it
	recent, older map[string]string
}

// find returns a plan that is remembered. The decider calls it.
func (a *assigned) find(customer string) (plan string, ok bool) {
	if plan, ok = a.recent[customer]; ok {
		return plan, true
	}
	if plan, ok = a.older[customer]; ok {
		a.put(customer, plan)
	}
	return plan, ok
}

// put remembers a plan. The decider calls it.
func (a *assigned) put(customer, plan string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.recent) >= a.limit || a.recent == nil {
		a.recent, a.older = map[string]string{}, a.recent
	}
	a.recent[strings.Clone(customer)] = strings.Clone(plan)
}

// has reports whether a plan is remembered. Anybody may call it.
func (a *assigned) has(customer string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, recent := a.recent[customer]
	_, older := a.older[customer]
	return recent || older
}

// fetchedPlans are the plans that a batch brought along, by customer.
type fetchedPlans struct {
	plans map[string]string
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
	plan, err := e.readPlan(w.book, customer)
	if err != nil {
		return
	}
	if w.plans.plans == nil {
		w.plans.plans = map[string]string{}
	}
	w.plans.plans[customer] = plan
}

// readPlan is the plan that the state has for a customer.
func (e *Engine) readPlan(b *book, customer string) (string, error) {
	found, ok, err := e.state.Entity(b.number, quota.AssignmentKind.Name, quota.AssignmentID(customer))
	if err != nil || !ok {
		return "", err
	}
	a, err := quota.AssignmentKind.Read(&found.Entity)
	return a.Plan, err
}

// Limit implements usage.State.
func (h *history) Limit(slug, customer string) (*quota.Limit, error) {
	if !h.b.resident.HasPlans() {
		return nil, nil //nolint:nilnil // no limit
	}
	plan, ok := h.b.assigned.find(customer)
	if !ok {
		var err error
		if plan, err = h.planOf(customer); err != nil {
			return nil, err
		}
		h.b.assigned.put(customer, plan)
	}
	return h.b.resident.Limit(plan, slug), nil
}

// planOf finds a plan that is not remembered. Engine.mu is held.
func (h *history) planOf(customer string) (string, error) {
	if n := h.e.recentEntity(h.b, quota.AssignmentKind.Name, quota.AssignmentID(customer)); n != nil {
		a, err := quota.AssignmentKind.Read(&n.Entity.Entity)
		return a.Plan, err
	}
	if h.plans != nil && h.plans.done == h.e.cells.done.Load() {
		if plan, ok := h.plans.plans[customer]; ok {
			return plan, nil
		}
	}
	return h.e.readPlan(h.b, customer)
}

// assign remembers the plan that a change gives a customer. Engine.mu is held.
func (b *book) assign(e *entity.Entity) error {
	a, err := quota.AssignmentKind.ReadIf(e)
	if a != nil && err == nil {
		b.assigned.put(a.Customer, a.Plan)
	}
	return err
}
