package usage

import (
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Counter is what is known of one meter, customer and month: two folds, the watermark between them, what people
// added by hand, and the total at the close.
type Counter struct {
	OnTime Fold
	// Late is the fold of all rows once it differs from the on-time one. Most counters never see a late row and
	// fold each fact once.
	Late      *Fold
	Watermark calendar.Micros // highest time folded on time; meaningful when Started
	Started   bool
	// Generation numbers the set of a unique meter's members; taking a member out starts the next one.
	Generation uint32
	Manual     amount.Amount // adjustments by people
	Adjusted   bool          // there were some, though they may add up to nothing
	Sealed     bool          // SealedTotal was fixed because something came after the close
	SealedAt   amount.Amount
	Alerted    uint16 // the highest threshold, in percent, of the customer's quota that was reported
}

// Clone gives the counter memory of its own: that of a live one is changed in place.
func (c *Counter) Clone() Counter {
	out := *c
	out.OnTime = *c.OnTime.clone()
	if c.Late != nil {
		out.Late = c.Late.clone()
	}
	return out
}

// All is the fold of every row.
func (c *Counter) All() *Fold {
	if c.Late != nil {
		return c.Late
	}
	return &c.OnTime
}

// Total is what the meter bills.
func (c *Counter) Total(a meter.Aggregation) amount.Amount {
	t, _ := c.All().Value(a).Add(c.Manual) // every change is checked to fit before it is made
	return t
}

// Adjustments is what stands between the on-time fold and the total.
func (c *Counter) Adjustments(a meter.Aggregation) amount.Amount {
	d, _ := c.Total(a).Sub(c.OnTime.Value(a))
	return d
}

// SealedTotal is the total at the close of the counter's period.
func (c *Counter) SealedTotal(a meter.Aggregation) amount.Amount {
	if c.Sealed {
		return c.SealedAt
	}
	return c.Total(a)
}

// seal keeps the total at the close, just before the first change after it.
func (c *Counter) seal(a meter.Aggregation, closed bool) {
	if closed && !c.Sealed {
		c.SealedAt, c.Sealed = c.Total(a), true
	}
}

// isLate reports whether a fact of that time is older than the lateness window.
func (c *Counter) isLate(t calendar.Micros, m *meter.Meter) bool {
	return c.Started && t < c.Watermark.Add(-m.Lateness)
}

// fits reports whether the counter can take one more value, also with what people added.
func (c *Counter) fits(v amount.Amount) bool {
	sum, ok := c.All().Sum.Add(v)
	if !ok {
		return false
	}
	if _, ok = c.OnTime.Sum.Add(v); !ok {
		return false
	}
	if c.Manual.IsZero() {
		return true
	}
	for _, total := range [...]amount.Amount{sum, v, amount.FromInt(c.All().Count + 1)} {
		if _, ok := total.Add(c.Manual); !ok {
			return false
		}
	}
	return true
}

// CanAdjust reports whether the amount can be added by hand.
func (c *Counter) CanAdjust(a amount.Amount) bool {
	manual, ok := c.Manual.Add(a)
	if !ok {
		return false
	}
	for _, v := range [...]amount.Amount{c.All().Sum, c.All().Max, c.All().Min, c.All().Last,
		amount.FromInt(c.All().Count)} {
		if _, ok := v.Add(manual); !ok {
			return false
		}
	}
	return true
}

// Adjust adds a person's adjustment; CanAdjust said that it fits.
func (c *Counter) Adjust(a amount.Amount, agg meter.Aggregation, closed bool) {
	c.seal(agg, closed)
	c.Manual, _ = c.Manual.Add(a)
	c.Adjusted = true
}

// add folds one fact. seenOnTime and seen report whether a unique meter's member was there before.
func (c *Counter) add(o *Outcome, t calendar.Micros, k Key, seenOnTime, seen bool) {
	if o.Why != OnTime {
		if c.Late == nil {
			c.Late = c.OnTime.clone()
		}
		c.Late.Add(o.Value, t, k)
		if o.Member != "" && !seen {
			c.Late.Members++
		}
		return
	}
	c.OnTime.Add(o.Value, t, k)
	if o.Member != "" && !seenOnTime {
		c.OnTime.Members++
	}
	if c.Late != nil {
		c.Late.Add(o.Value, t, k)
		if o.Member != "" && !seen {
			c.Late.Members++
		}
	}
	if !c.Started || t > c.Watermark {
		c.Watermark, c.Started = t, true
	}
}

// Equal compares two counters of one meter to the last digit, in all that a rule or a caller can see.
func (c *Counter) Equal(d *Counter, a meter.Aggregation) bool {
	return c.OnTime.Equal(&d.OnTime) && c.All().Equal(d.All()) && c.Started == d.Started &&
		c.Watermark == d.Watermark &&
		c.Manual == d.Manual && c.SealedTotal(a) == d.SealedTotal(a) && c.Alerted == d.Alerted
}

// Empty reports whether the counter has never been touched.
func (c *Counter) Empty() bool {
	return c.OnTime.Count == 0 && c.Late == nil && !c.Started && !c.Adjusted && !c.Sealed
}

// HasRows reports whether the counter has ever folded a usage row.
func (c *Counter) HasRows() bool { return c.Started || c.Late != nil || c.OnTime.Count > 0 }
