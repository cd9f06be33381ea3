package usage

import (
	"bytes"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// Fold is the sum of many rows: what a pure fold over them in any order gives.
//
// Min, max and last cannot be subtracted from. The fold therefore also knows how many facts stand at its extremes, so
// that a correction needs the rows themselves only when it takes away the last fact at an extreme, or the latest fact.
type Fold struct {
	Count    int64 // facts that count
	Sum      amount.Amount
	Min, Max amount.Amount
	AtMin    int64 // facts whose quantity is Min
	AtMax    int64
	Last     amount.Amount // of the fact with the highest time, then key
	LastTime calendar.Micros
	LastKey  []byte // space and name; owned by the fold
	Members  int64  // distinct members of a unique meter
}

// Effective is a fact's quantity with its corrections. A corrected fact counts while it is above zero.
type Effective struct {
	Quantity amount.Amount
	Counts   bool
}

// Add folds one more fact. The caller has made sure that the sum fits.
func (f *Fold) Add(v amount.Amount, t calendar.Micros, k Key) {
	f.Sum, _ = f.Sum.Add(v)
	f.count(v, t, k)
}

func (f *Fold) count(v amount.Amount, t calendar.Micros, k Key) {
	f.Count++
	if f.Count == 1 {
		f.Min, f.Max, f.AtMin, f.AtMax = v, v, 1, 1
		f.setLast(v, t, k)
		return
	}
	f.extremes(v)
	if t > f.LastTime || t == f.LastTime && compareKey(k, f.LastKey) > 0 {
		f.setLast(v, t, k)
	}
}

func (f *Fold) extremes(v amount.Amount) {
	switch c := v.Cmp(f.Min); {
	case c < 0:
		f.Min, f.AtMin = v, 1
	case c == 0:
		f.AtMin++
	}
	switch c := v.Cmp(f.Max); {
	case c > 0:
		f.Max, f.AtMax = v, 1
	case c == 0:
		f.AtMax++
	}
}

func (f *Fold) setLast(v amount.Amount, t calendar.Micros, k Key) {
	f.Last, f.LastTime = v, t
	f.LastKey = append(append(f.LastKey[:0], byte(k.Space)), k.Name...)
}

// Correct replaces one fact's effective quantity. It reports false when what is left can only be found from the
// rows, as always when a unique meter gains or loses a fact; the fold is then to be made anew.
func (f *Fold) Correct(from, to Effective, t calendar.Micros, k Key, unique bool) bool {
	if !from.Counts && !to.Counts {
		return true
	}
	if unique && from.Counts != to.Counts {
		return false
	}
	sum, _ := f.Sum.Sub(from.Quantity)
	f.Sum, _ = sum.Add(to.Quantity)
	if !from.Counts {
		f.count(to.Quantity, t, k)
		return true
	}
	if f.Count == 1 { // it is the only fact: nothing stands beside it that the rows would have to name
		if !to.Counts {
			*f = Fold{}
			return true
		}
		f.Min, f.Max, f.Last = to.Quantity, to.Quantity, to.Quantity
		return true
	}
	isLast := compareKey(k, f.LastKey) == 0
	if from.Quantity == f.Min {
		f.AtMin--
	}
	if from.Quantity == f.Max {
		f.AtMax--
	}
	if to.Counts {
		f.extremes(to.Quantity)
		if isLast {
			f.Last = to.Quantity
		}
		return f.AtMin > 0 && f.AtMax > 0
	}
	f.Count--
	return f.AtMin > 0 && f.AtMax > 0 && !isLast
}

func compareKey(k Key, owned []byte) int {
	if len(owned) == 0 {
		return 1
	}
	if byte(k.Space) != owned[0] {
		return int(k.Space) - int(owned[0])
	}
	// The conversion does not copy: the compiler sees that the bytes are only compared.
	return bytes.Compare([]byte(k.Name), owned[1:])
}

// Value is the fold by an aggregation, before adjustments. An empty fold is zero.
func (f *Fold) Value(a meter.Aggregation) amount.Amount {
	switch a {
	case meter.Sum:
		return f.Sum
	case meter.Count:
		return amount.FromInt(f.Count)
	case meter.Min:
		return f.Min
	case meter.Max:
		return f.Max
	case meter.Last:
		return f.Last
	case meter.Unique:
		return amount.FromInt(f.Members)
	case meter.Avg:
		if f.Count == 0 {
			return amount.Zero
		}
		return f.Sum.DivInt(f.Count)
	}
	panic("usage: unknown aggregation")
}

// Equal compares two folds to the last digit.
func (f *Fold) Equal(g *Fold) bool {
	return f.Count == g.Count && f.Sum == g.Sum && f.Min == g.Min && f.Max == g.Max && f.AtMin == g.AtMin &&
		f.AtMax == g.AtMax &&
		f.Last == g.Last && f.LastTime == g.LastTime && bytes.Equal(f.LastKey, g.LastKey) && f.Members == g.Members
}

func (f *Fold) clone() *Fold {
	c := *f
	c.LastKey = bytes.Clone(f.LastKey)
	return &c
}
