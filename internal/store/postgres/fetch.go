package postgres

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// wants is what a transaction has yet to read before the rules can decide, gathered so that it takes one round trip.
type wants struct {
	keys     array // of events
	keyCount int

	counters []usage.CounterID
	places   placeArrays
	asked    map[usage.CounterID]bool
	got      map[store.CounterPlace]*cell

	targets []string // ids of facts whose corrections are wanted

	tallies                map[tallyID]*tallyCell
	tallyMonth, tallyMeter array
	plans                  map[string]quota.Schedule // by customer, of whom they are wanted

	memberNames []memberName
	memberAt    placeArrays
	memberText  array
}

func (w *wants) key(k usage.Key) {
	if w.keyCount == 0 {
		w.keys.reset(oidText)
	}
	w.keyCount++
	w.keys.length(1 + len(k.Name))
	w.keys.buf = append(append(w.keys.buf, byte(k.Space)), k.Name...)
}

func (w *wants) counter(h *history, id usage.CounterID) {
	if w.asked[id] || h.cache.cells[id] != nil {
		return
	}
	id = owned(id)
	if w.asked == nil {
		w.asked = map[usage.CounterID]bool{}
		w.places.reset()
	}
	w.asked[id] = true
	w.counters = append(w.counters, id)
	w.places.add(h.place(id))
}

func (w *wants) corrections(h *history, target usage.Key) {
	if h.asked[target] {
		return
	}
	h.asked[target] = true
	w.targets = append(w.targets, target.ID())
}

func (w *wants) member(h *history, name memberName) {
	if h.looked[name] {
		return
	}
	h.looked[name] = true
	if len(w.memberNames) == 0 {
		w.memberAt.reset()
		w.memberText.reset(oidText)
	}
	w.memberNames = append(w.memberNames, name)
	w.memberAt.add(h.place(name.id))
	w.memberText.text(name.member)
}

// row asks for all that a fact with these feeds may need.
func (w *wants) row(h *history, feeds []usage.Feed, id usage.CounterID) {
	for i := range feeds {
		id.Meter = feeds[i].Meter.Number
		w.counter(h, id)
		w.tally(h, tallyID{id.Meter, id.Month})
		if feeds[i].Member != "" {
			w.member(h, memberName{id, feeds[i].Member})
		}
	}
	w.plan(h, "")
	w.plan(h, id.Customer)
}

// target asks for all that a correction of the row may need.
func (w *wants) target(h *history, r *usage.Row) {
	w.corrections(h, r.Key)
	for i := range r.Outcomes {
		w.counter(h, usage.CounterID{Meter: r.Outcomes[i].Meter, Customer: r.Customer, Month: r.Month()})
		w.tally(h, tallyID{r.Outcomes[i].Meter, r.Month()})
	}
	w.plan(h, "")
	w.plan(h, r.Customer)
}

func (w *wants) nothing() bool {
	return w.keyCount == 0 && len(w.counters) == 0 && len(w.targets) == 0 && len(w.memberNames) == 0 &&
		len(w.tallies) == 0 && len(w.plans) == 0
}

// effect asks for all that a change's effect touches.
func (w *wants) effect(h *history, f *ledger.Effect) {
	f.Touches(func(id usage.CounterID) {
		w.tally(h, tallyID{id.Meter, id.Month})
		if id.Customer != "" {
			w.counter(h, id)
		}
	})
}

// fetch reads what is wanted into the history.
func (h *history) fetch(w *wants) error {
	if h.fault != nil || w.nothing() {
		return h.fault
	}
	if err := h.freed(); err != nil {
		return err
	}
	r := h.c.roundTrip(h.ctx)
	h.ask(r, w, func() bool { return true })
	if err := r.do(); err != nil {
		return h.fail(fmt.Errorf("read what the events depend on: %w", err))
	}
	h.enter(w)
	return nil
}

// ask adds the statements that read what is wanted. Their results are looked at only if they count, which is known when
// the first comes.
func (h *history) ask(r *roundTrip, w *wants, counts func() bool) {
	id := []byte(h.tenantID)
	send := func(st *statement, each func(*reader) error, params ...[]byte) {
		r.send(st, func(in *reader) error {
			if !counts() {
				return nil
			}
			return each(in)
		}, params...)
	}
	if w.keyCount > 0 {
		send(eventsByKey, h.find, id, w.keys.param())
	}
	if len(w.counters) > 0 {
		w.got = make(map[store.CounterPlace]*cell, len(w.counters))
		send(countersByKey, func(in *reader) error {
			c, err := readCounter(in)
			w.got[c.place] = c
			return err
		}, w.places.params(h.tenantID)...)
	}
	if len(w.targets) > 0 {
		send(corrections, h.correctedBy, id, textsParam(w.targets))
	}
	if len(w.memberNames) > 0 {
		send(membersByKey, h.joinedBy, append(w.memberAt.params(h.tenantID), w.memberText.param())...)
	}
	w.askQuotas(send, h)
}

// enter puts the counters that were read into the cache.
func (h *history) enter(w *wants) {
	for _, id := range w.counters {
		place := h.place(id)
		c := w.got[place]
		if c == nil {
			c = &cell{place: place}
		}
		c.id = id
		h.cache.cells[id] = c
	}
	w.enterQuotas(h.cache)
}

// find notes a row of the table.
func (h *history) find(in *reader) error {
	r, err := readEvent(in, h.set)
	if err == nil {
		h.found[r.Event.Key] = &r
	}
	return err
}

// correctedBy adds one correction to what was done to its target.
func (h *history) correctedBy(in *reader) error {
	r, err := readEvent(in, h.set)
	if err != nil {
		return err
	}
	return h.correct(&r)
}

func (h *history) correct(r *ledger.Row) error {
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		k := factMeter{usage.KeyOfID(r.Event.Corrects), o.Meter}
		c := h.corrected[k]
		all, fits := c.All.Add(o.Value)
		if !fits {
			return fmt.Errorf("the corrections up to row %d overflow: %w", r.Seq, errDefect)
		}
		c.All = all
		c.Times++
		if o.Why == usage.OnTime {
			c.TimesOnTime++
			c.OnTime, _ = c.OnTime.Add(o.Value)
		}
		h.corrected[k] = c
	}
	return nil
}

func (h *history) joinedBy(in *reader) error {
	p := store.CounterPlace{Month: in.month(), Meter: in.text(), Customer: in.text()}
	member, generation, onTime := in.text(), uint32(in.int4()), in.bool()
	number, ok := h.set.numberOf(p.Meter)
	if in.err != nil || !ok {
		return in.err
	}
	id := usage.CounterID{Meter: number, Customer: p.Customer, Month: p.Month}
	h.members[memberKey{memberName{id, member}, generation}] = onTime
	return nil
}
