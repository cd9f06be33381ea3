package usage

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
)

// keepCorrection decides a correction: it takes from its target what it does not say, and shares its outcome.
func keepCorrection(st State, f *Fact, seq uint64, now calendar.Micros, row *Row) *problem.Error {
	e := f.Event
	target, err := st.Target(KeyOfID(e.Corrects))
	if err != nil {
		return targetFailure(err)
	}
	if target == nil {
		return problem.New(problem.UnknownCorrectionTarget, "no event %s to correct", quoted(e.Corrects))
	}
	if target.IsCorrection() {
		return problem.At("corrects", "%s is itself a correction: correct the original event", quoted(e.Corrects))
	}
	if p := checkFloor(target.Time, st.Floor()); p != nil {
		return p
	}
	if p := agrees(e, target); p != nil {
		return p
	}
	hit, m, p := corrected(st, e, target)
	if p != nil {
		return p
	}
	if e.Unrounded != "" && m.Rounding != meter.HalfEven {
		return inexact()
	}
	row.Event, row.Key, row.Outcomes = *e, f.Key, row.Outcomes[:0]
	row.Unrounded = ""
	row.Meter = m.Slug
	// The row stays longer than its target, which may share its memory with thousands of others.
	row.Customer, row.Resource, row.Time = strings.Clone(target.Customer), strings.Clone(target.Resource), target.Time
	o := Outcome{Meter: hit.Meter, Value: e.Quantity, Base: hit.Value, Member: strings.Clone(hit.Member)}
	switch {
	case st.Closed(row.Month()):
		o.Why = PeriodClosed
	case hit.Why != OnTime:
		o.Why = TargetWas
	}
	c, p := roomFor(st, m, &o, row, now)
	if p != nil {
		return p
	}
	if err := applyCorrection(st, c, m, &o, row, seq); err != nil {
		return unreadable(err)
	}
	row.Outcomes = append(row.Outcomes, o)
	return nil
}

// roomFor finds the counter that a correction changes, and refuses one that takes more than is left of its target, that
// adds more than a quota allows, or that does not fit.
func roomFor(st State, m *meter.Meter, o *Outcome, row *Row, now calendar.Micros) (*Counter, *problem.Error) {
	done, p := leftOver(st, o, row.Corrects)
	if p != nil {
		return nil, p
	}
	id := CounterID{m.Number, row.Customer, row.Month()}
	c, err := st.Counter(id)
	if err != nil {
		return nil, unreadable(err)
	}
	if AddsUp(m.Aggregation) {
		t := touch{counter: c}
		add := moves(m.Aggregation, done.all(o.Base), done.with(o).all(o.Base))
		if p := t.ration(st, m, o, id, add, now); p != nil {
			return nil, p
		}
	}
	if !c.fits(o.Value) {
		return nil, counterFull(m, id.Month)
	}
	return c, nil
}

// agrees checks what the correction states against its target.
func agrees(e *Event, target *Row) *problem.Error {
	for _, f := range [...]struct {
		field        Given
		path         string
		stated, have string
	}{
		{GivenCustomer, "customer", e.Customer, target.Customer},
		{GivenResource, "resource", e.Resource, target.Resource},
		{GivenType, "type", e.Type, target.Type},
	} {
		if e.Has(f.field) && f.stated != f.have {
			return problem.At(f.path, "differs from the corrected event's: leave it out")
		}
	}
	if e.Has(GivenTime) && e.Time != target.Time {
		return problem.At("time", "differs from the corrected event's: leave it out")
	}
	return nil
}

// corrected finds the outcome of the target that the correction is about.
func corrected(st State, e *Event, target *Row) (*Outcome, *meter.Meter, *problem.Error) {
	if !e.Has(GivenMeter) {
		if len(target.Outcomes) > 1 {
			return nil, nil, problem.At("meter", "required: the corrected event feeds %s", fedMeters(st, target))
		}
		return &target.Outcomes[0], st.Catalog().Number(target.Outcomes[0].Meter), nil
	}
	for i := range target.Outcomes {
		if m := st.Catalog().Number(target.Outcomes[i].Meter); m.Slug == e.Meter {
			return &target.Outcomes[i], m, nil
		}
	}
	return nil, nil, problem.At("meter", "the corrected event does not feed it; it feeds %s", fedMeters(st, target))
}

func fedMeters(st State, target *Row) string {
	var slugs []string
	for i := range target.Outcomes {
		slugs = append(slugs, st.Catalog().Number(target.Outcomes[i].Meter).Slug)
	}
	slices.Sort(slugs)
	return strings.Join(slugs, ", ")
}

// leftOver returns what was corrected so far, and refuses a correction that would take away more than there is.
func leftOver(st State, o *Outcome, target string) (Corrected, *problem.Error) {
	done, err := st.Corrected(KeyOfID(target), o.Meter)
	if err != nil {
		return done, unreadable(err)
	}
	now, ok := o.Base.Add(done.All)
	if !ok {
		return done, problem.New(problem.Overflow, "the corrected quantity does not fit")
	}
	left, ok := now.Add(o.Value)
	if !ok {
		return done, problem.New(problem.Overflow, "the corrected quantity does not fit")
	}
	if left.Sign() < 0 {
		return done, problem.At("quantity", "only %s is left of the corrected event", now)
	}
	if o.Value.Sign() > 0 && left.Cmp(maxQuantity) >= 0 {
		return done, problem.At("quantity", "the corrected event would have %s: a quantity must be smaller than 10^15",
			left)
	}
	return done, nil
}

// with returns the state after one more correction.
func (c Corrected) with(o *Outcome) Corrected {
	c.Times++
	c.All, _ = c.All.Add(o.Value)
	if o.Why == OnTime {
		c.TimesOnTime++
		c.OnTime, _ = c.OnTime.Add(o.Value)
	}
	return c
}

// all and onTime are a fact's effective quantity in either fold.
func (c Corrected) all(value amount.Amount) Effective { return effective(value, c.All, c.Times) }

func (c Corrected) onTime(value amount.Amount) Effective {
	return effective(value, c.OnTime, c.TimesOnTime)
}

func effective(value, change amount.Amount, times int) Effective {
	q, _ := value.Add(change) // leftOver made sure that it fits
	return Effective{Quantity: q, Counts: times == 0 || q.Sign() > 0}
}

// applyCorrection changes both folds of the counter, or the fold of all rows alone. All that can fail comes first.
func applyCorrection(st State, c *Counter, m *meter.Meter, o *Outcome, row *Row, seq uint64) error {
	target := KeyOfID(row.Corrects)
	id := CounterID{m.Number, row.Customer, row.Month()}
	done, err := st.Corrected(target, o.Meter)
	if err != nil {
		return err
	}
	var tally *Tally
	if AddsUp(m.Aggregation) {
		if tally, err = st.Tally(m.Number, id.Month); err != nil {
			return err
		}
	}
	day, err := dayOf(st, m, row.Time)
	if err != nil {
		return err
	}
	next := done.with(o)
	unique := m.Aggregation == meter.Unique
	onTime, all := c.OnTime.clone(), c.All().clone()
	known := all.Correct(done.all(o.Base), next.all(o.Base), row.Time, target, unique)
	if o.Why == OnTime {
		known = onTime.Correct(done.onTime(o.Base), next.onTime(o.Base), row.Time, target, unique) && known
	}
	var members map[string]bool
	if !known {
		if onTime, all, members, err = refold(st, id, seq, target, o); err != nil {
			return err
		}
	}
	c.seal(m.Aggregation, st.Closed(id.Month))
	before, used := c.Total(m.Aggregation), c.All().Value(m.Aggregation)
	c.OnTime = *onTime
	if c.Late != nil || o.Why != OnTime {
		c.Late = all
	}
	if members != nil {
		c.Generation++
		for name, onTime := range members {
			st.AddMember(id, c.Generation, name, onTime)
		}
	}
	if tally != nil {
		change, _ := c.All().Value(m.Aggregation).Sub(used)
		tally.Used, _ = tally.Used.Add(change)
	}
	if day != nil {
		day.Correct(m.Aggregation, o, done, row.Time, target)
	}
	st.Correct(target, o.Meter, next)
	if o.Why != OnTime {
		o.Amount, _ = c.Total(m.Aggregation).Sub(before)
	}
	return nil
}

// refold makes both folds of a counter anew from its rows and one pending correction. Members says of each member of a
// unique meter whether an on-time fact holds it; it is nil for other meters. A member that only the on-time fold still
// has is left out: that happens only after the close, when nothing is on time any more.
func refold(st State, id CounterID, below uint64, target Key, pending *Outcome) (onTime, all *Fold,
	members map[string]bool, err error) {
	corrections := map[Key]Corrected{target: Corrected{}.with(pending)}
	err = st.Slice(id, below, func(r *Row, o *Outcome) {
		if r.IsCorrection() {
			k := KeyOfID(strings.Clone(r.Corrects))
			corrections[k] = corrections[k].with(o)
		}
	})
	if err != nil {
		return nil, nil, nil, err
	}
	onTime, all = &Fold{}, &Fold{}
	held := map[string]bool{}
	if pending.Member != "" {
		members = map[string]bool{}
	}
	err = st.Slice(id, below, func(r *Row, o *Outcome) {
		if r.IsCorrection() {
			return
		}
		c := corrections[r.Key]
		punctual := false
		if e := c.onTime(o.Value); e.Counts && o.Why == OnTime {
			punctual = true
			onTime.Add(e.Quantity, r.Time, r.Key)
			if members != nil {
				held[strings.Clone(o.Member)] = true
			}
		}
		if e := c.all(o.Value); e.Counts {
			all.Add(e.Quantity, r.Time, r.Key)
			if members != nil {
				members[strings.Clone(o.Member)] = members[o.Member] || punctual
			}
		}
	})
	all.Members, onTime.Members = int64(len(members)), int64(len(held))
	return onTime, all, members, err
}
