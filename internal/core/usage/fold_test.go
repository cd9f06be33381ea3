package usage

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// folded is one fact as the reference keeps it.
type folded struct {
	key  Key
	time calendar.Micros
	Effective
}

// foldAnew is what a fold must equal: the definition of each field, read off the list.
func foldAnew(facts []folded) *Fold {
	f := &Fold{}
	var last *folded
	for i := range facts {
		x := &facts[i]
		if !x.Counts {
			continue
		}
		f.Count++
		f.Sum, _ = f.Sum.Add(x.Quantity)
		if last == nil || x.Quantity.Cmp(f.Min) < 0 {
			f.Min = x.Quantity
		}
		if last == nil || x.Quantity.Cmp(f.Max) > 0 {
			f.Max = x.Quantity
		}
		if last == nil || x.time > last.time || x.time == last.time && order(x.key) > order(last.key) {
			last = x
		}
	}
	for _, x := range facts {
		if x.Counts && x.Quantity == f.Min {
			f.AtMin++
		}
		if x.Counts && x.Quantity == f.Max {
			f.AtMax++
		}
	}
	if last != nil {
		f.Last, f.LastTime, f.LastKey = last.Quantity, last.time, []byte(order(last.key))
	}
	return f
}

func order(k Key) string { return string(rune(k.Space)) + k.Name }

// Few values, times and names: extremes and times shall often be shared.
func drawFact(t *rapid.T, n int) folded {
	space := rapid.SampledFrom([]Space{ClientSpace, DerivedSpace}).Draw(t, "space")
	name := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"", "a", "b", "aa"}).Draw(t, "name"), n)
	return folded{
		key: Key{space, name}, time: calendar.Micros(rapid.IntRange(0, 3).Draw(t, "time")),
		Effective: Effective{Quantity: amount.FromInt(rapid.Int64Range(0, 4).Draw(t, "quantity")), Counts: true},
	}
}

func TestFoldAddInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var facts []folded
		for i := range rapid.IntRange(0, 12).Draw(t, "facts") {
			facts = append(facts, drawFact(t, i))
		}
		want := foldAnew(facts)
		for _, arrival := range [][]folded{facts, rapid.Permutation(facts).Draw(t, "arrival")} {
			got := &Fold{}
			for _, x := range arrival {
				got.Add(x.Quantity, x.time, x.key)
			}
			if !got.Equal(want) {
				t.Fatalf("have %+v\nwant %+v", got, want)
			}
		}
	})
}

// Correct either leaves what a fold over the corrected facts gives, or says that it cannot; and it says so only when
// the corrected fact stood beside others, alone at an extreme, or was the latest and is gone, or when a unique meter
// gained or lost a fact.
func TestFoldCorrect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unique := rapid.Bool().Draw(t, "unique")
		var facts []folded
		f := &Fold{}
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(facts) == 0 || rapid.IntRange(0, 2).Draw(t, "step") == 0 {
				x := drawFact(t, i)
				f.Add(x.Quantity, x.time, x.key)
				facts = append(facts, x)
			} else {
				x := &facts[rapid.IntRange(0, len(facts)-1).Draw(t, "fact")]
				from, before := x.Effective, f.clone()
				x.Quantity = amount.FromInt(rapid.Int64Range(0,
					4).Filter(func(n int64) bool { return amount.FromInt(n) != from.Quantity }).Draw(t, "left"))
				x.Counts = x.Quantity.Sign() > 0
				if !f.Correct(from, x.Effective, x.time, x.key, unique) {
					if !mayGiveUp(before, from, x, unique) {
						t.Fatalf("gave up on %+v → %+v in %+v", from, x.Effective, before)
					}
					f = foldAnew(facts)
				}
			}
			if want := foldAnew(facts); !f.Equal(want) {
				t.Fatalf("have %+v\nwant %+v", f, want)
			}
		}
	})
}

func mayGiveUp(before *Fold, from Effective, x *folded, unique bool) bool {
	if unique && from.Counts != x.Counts {
		return true
	}
	aloneAtMin := from.Quantity == before.Min && before.AtMin == 1
	aloneAtMax := from.Quantity == before.Max && before.AtMax == 1
	goneLatest := !x.Counts && string(before.LastKey) == order(x.key)
	return from.Counts && before.Count > 1 && (aloneAtMin || aloneAtMax || goneLatest)
}

func TestFoldValue(t *testing.T) {
	f := &Fold{Count: 3, Sum: amount.FromInt(8), Min: amount.FromInt(1), Max: amount.FromInt(5),
		Last: amount.FromInt(2), Members: 4}
	for a, want := range map[meter.Aggregation]string{
		meter.Sum: "8", meter.Count: "3", meter.Min: "1", meter.Max: "5", meter.Last: "2", meter.Unique: "4",
		meter.Avg: "2.666666666667",
	} {
		if got := f.Value(a).String(); got != want {
			t.Errorf("%s is %s, want %s", a, got, want)
		}
		if got := (&Fold{}).Value(a); !got.IsZero() {
			t.Errorf("%s of nothing is %s", a, got)
		}
	}
}
