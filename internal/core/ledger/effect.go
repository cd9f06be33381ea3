package ledger

import (
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Effect is what a change does to counters, beside the entity that it leaves behind: a person's adjustment, a
// threshold that was reached, the base of an archived month. Most changes have none.
type Effect struct {
	Adjustment *usage.Adjustment
	Alert      *quota.Alert
	Base       *Base
}

// EffectOf reads the effect of a change.
func EffectOf(e *entity.Entity) (f Effect, err error) {
	if f.Adjustment, err = usage.AdjustmentKind.ReadIf(e); err != nil {
		return f, err
	}
	if f.Alert, err = quota.AlertKind.ReadIf(e); err != nil {
		return f, err
	}
	f.Base, err = BaseKind.ReadIf(e)
	return f, err
}

// Touches calls fn for the counters that the effect changes. One without a customer stands for the tally of its meter
// alone.
func (f *Effect) Touches(fn func(usage.CounterID)) {
	switch {
	case f.Adjustment != nil:
		a := f.Adjustment
		fn(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	case f.Alert != nil:
		a := f.Alert
		fn(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	case f.Base != nil:
		for i := range f.Base.Counters {
			c := &f.Base.Counters[i]
			fn(usage.CounterID{Meter: c.Meter, Customer: c.Customer, Month: f.Base.Month})
		}
	}
}

// Apply changes the counters and tallies. A base sets counters to what their rows added up to, since those rows may
// have left; while they are there it changes nothing.
func (f *Effect) Apply(st usage.State) error {
	switch {
	case f.Adjustment != nil:
		a := f.Adjustment
		c, err := st.Counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
		if err != nil {
			return err
		}
		c.Adjust(a.Amount, st.Catalog().Number(a.Meter).Aggregation, st.Closed(a.Month))
	case f.Alert != nil:
		return f.applyAlert(st)
	case f.Base != nil:
		for i := range f.Base.Counters {
			if err := f.applyBase(st, &f.Base.Counters[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Effect) applyAlert(st usage.State) error {
	a := f.Alert
	if a.Customer == "" {
		t, err := st.Tally(a.Meter, a.Month)
		if err != nil {
			return err
		}
		t.Alert(a.Threshold)
		return nil
	}
	c, err := st.Counter(usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month})
	if err != nil {
		return err
	}
	c.Alert(a.Threshold)
	return nil
}

func (f *Effect) applyBase(st usage.State, in *BaseCounter) error {
	c, err := st.Counter(usage.CounterID{Meter: in.Meter, Customer: in.Customer, Month: f.Base.Month})
	if err != nil {
		return err
	}
	a := st.Catalog().Number(in.Meter).Aggregation
	before, after := c.All().Value(a), in.All().Value(a)
	if usage.AddsUp(a) && before != after {
		t, err := st.Tally(in.Meter, f.Base.Month)
		if err != nil {
			return err
		}
		t.Used, _ = t.Used.Sub(before)
		t.Used, _ = t.Used.Add(after) // it held them before the rows left
	}
	*c = in.Counter
	return nil
}
