package postgres

import (
	"bytes"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// change adds a change row and lets it take effect.
func (h *history) change(c *ledger.Change) error {
	r := ledger.Row{Seq: h.first + uint64(len(h.rows)), At: h.now, Change: c}
	h.rows = append(h.rows, r)
	if c.State.IsZero() {
		return nil
	}
	e := ownEntity(r.Entity())
	entry, err := h.set.kinds.Entry(&e)
	if err != nil {
		return err
	}
	next, err := h.set.with(&e)
	if err != nil {
		return err
	}
	if h.set.isNewlyCritical(&e) {
		h.newlyCritical = append(h.newlyCritical, criticalKind{codecOf(&e.State), e.Seq})
	}
	h.set = next
	if entry.Keep {
		h.entities[entityName{e.Kind, e.ID}] = keptEntity{e, entry}
	}
	if err := h.remember(&e); err != nil {
		return err
	}
	effect, err := h.set.EffectOf(&e)
	if err != nil {
		return err
	}
	return effect.Apply(effectState{h})
}

// ownEntity has memory of its own: that of a row may belong to whoever sent it.
func ownEntity(e entity.Entity) entity.Entity {
	e.Kind, e.ID, e.Data = strings.Clone(e.Kind), strings.Clone(e.ID), bytes.Clone(e.Data)
	return e
}

// effectState is the history as the effect of a change sees it: whatever it asks for, it changes.
type effectState struct{ *history }

func (s effectState) Counter(id usage.CounterID) (*usage.Counter, error) {
	s.touched = s.touched[:0]
	c, err := s.history.Counter(id)
	for _, cell := range s.touched {
		s.mark(cell)
	}
	s.touched = s.touched[:0]
	return c, err
}

func (s effectState) Tally(number uint32, m calendar.Month) (*usage.Tally, error) {
	c, err := s.tally(tallyID{number, m})
	if err != nil {
		return nil, err
	}
	s.markTally(c)
	return &c.Tally, nil
}

// pendingState is one counter with the effects of changes that an update has appended and not written yet. Effects ask
// for nothing else.
type pendingState struct {
	usage.State
	set     *residentSet
	counter *usage.Counter
}

func (s pendingState) Catalog() *usage.Catalog                            { return s.set.Catalog }
func (s pendingState) Closed(m calendar.Month) bool                       { return s.set.Closed(m) }
func (s pendingState) Counter(usage.CounterID) (*usage.Counter, error)    { return s.counter, nil }
func (s pendingState) Tally(uint32, calendar.Month) (*usage.Tally, error) { return &usage.Tally{}, nil }
