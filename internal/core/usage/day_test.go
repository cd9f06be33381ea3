package usage_test

import (
	"bytes"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// noon is the hour that the facts of these tests fall in.
const noon = calendar.Micros(12 * 3_600_000_000)

type hourStep struct {
	id       string
	at       calendar.Micros // after noon
	value    string          // of a correction: the change
	corrects string
	base     string
	done     usage.Corrected
}

func (s hourStep) into(d *usage.Day, a meter.Aggregation) {
	if s.corrects == "" {
		d.Add(a, parsed(s.value), noon+s.at, usage.KeyOfID(s.id))
		return
	}
	o := &usage.Outcome{Value: parsed(s.value), Base: parsed(s.base)}
	d.Correct(a, o, s.done, noon+s.at, usage.KeyOfID(s.corrects))
}

// One case, one line: what happens in an hour, and what it then holds.
func TestHours(t *testing.T) {
	two, five, nine := hourStep{id: "a", at: 1, value: "2"}, hourStep{id: "b", at: 2, value: "5"},
		hourStep{id: "c", at: 3, value: "9"}
	gone := func(of hourStep) hourStep {
		return hourStep{id: "k", at: of.at, value: "-" + of.value, corrects: of.id, base: of.value}
	}
	less := func(of hourStep, by string) hourStep {
		return hourStep{id: "k", at: of.at, value: by, corrects: of.id, base: of.value}
	}
	back := hourStep{id: "l", at: 3, value: "1", corrects: "c", base: "9",
		done: usage.Corrected{Times: 1, All: parsed("-9")}}
	for _, c := range []struct {
		name  string
		a     meter.Aggregation
		steps []hourStep
		count int64
		value string
		lost  bool
	}{
		{"a sum adds", meter.Sum, []hourStep{two, nine}, 2, "11", false},
		{"a sum is corrected", meter.Sum, []hourStep{two, nine, less(nine, "-4")}, 2, "7", false},
		{"a fact that is gone does not count", meter.Sum, []hourStep{two, nine, gone(nine)}, 1, "2", false},
		{"an hour that is empty again", meter.Max, []hourStep{nine, gone(nine)}, 0, "0", false},
		{"a fact comes back", meter.Sum, []hourStep{two, nine, gone(nine), back}, 2, "3", false},
		{"a sum that does not fit", meter.Sum, []hourStep{{id: "a", value: "1" + zeros(25)},
			{id: "b", value: "9" + zeros(25)}, {id: "c", value: "9" + zeros(25)}}, 0, "0", true},
		{"an average keeps the sum", meter.Avg, []hourStep{two, nine}, 2, "11", false},
		{"a count counts", meter.Count, []hourStep{two, nine, gone(two)}, 1, "0", false},
		{"a maximum", meter.Max, []hourStep{two, nine, five}, 3, "9", false},
		{"below a maximum nothing is lost", meter.Max, []hourStep{two, nine, gone(two)}, 1, "9", false},
		{"the maximum goes", meter.Max, []hourStep{two, nine, gone(nine)}, 0, "0", true},
		{"one of two goes", meter.Max, []hourStep{nine, {id: "d", at: 4, value: "9"}, gone(nine)}, 1, "9", false},
		{"the maximum grows", meter.Max, []hourStep{two, nine, less(nine, "1")}, 2, "10", false},
		{"the maximum shrinks", meter.Max, []hourStep{two, nine, less(nine, "-1")}, 0, "0", true},
		{"the only one shrinks", meter.Max, []hourStep{nine, less(nine, "-1")}, 1, "8", false},
		{"a minimum", meter.Min, []hourStep{nine, two, five}, 3, "2", false},
		{"the minimum shrinks", meter.Min, []hourStep{two, nine, less(two, "-1")}, 2, "1", false},
		{"the minimum grows", meter.Min, []hourStep{two, nine, less(two, "1")}, 0, "0", true},
		{"the last by time", meter.Last, []hourStep{nine, two}, 2, "9", false},
		{"the last is corrected", meter.Last, []hourStep{two, nine, less(nine, "-8")}, 2, "1", false},
		{"the last goes", meter.Last, []hourStep{two, nine, gone(nine)}, 0, "0", true},
		{"one before the last goes", meter.Last, []hourStep{two, nine, gone(two)}, 1, "9", false},
		{"what is lost stays lost", meter.Max, []hourStep{two, nine, gone(nine), five}, 0, "0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d usage.Day
			for _, s := range c.steps {
				s.into(&d, c.a)
			}
			before := usage.AppendDay(nil, &d)
			twin := d.Clone()
			hourStep{id: "z", at: 99, value: "7"}.into(twin, c.a)
			if !bytes.Equal(before, usage.AppendDay(nil, &d)) {
				t.Error("a change of a clone changed the day")
			}
			h := d.Hour(12)
			if h.Count != c.count || h.Value != parsed(c.value) || h.Lost != c.lost {
				t.Errorf("%+v, want %d facts, %s, lost %t", *h, c.count, c.value, c.lost)
			}
			if d.Hour(11) != nil || d.Hour(13) != nil {
				t.Error("another hour has something too")
			}
		})
	}
}

func zeros(n int) string { return string(bytes.Repeat([]byte{'0'}, n)) }

// Whatever is read as a day is written as it was read, and nothing makes reading panic.
func FuzzReadDay(f *testing.F) {
	var d usage.Day
	for i, a := range []meter.Aggregation{meter.Sum, meter.Max, meter.Last} {
		hourStep{id: "a", at: calendar.Micros(i) * 3_600_000_000, value: "2.5"}.into(&d, a)
	}
	f.Add(usage.AppendDay(nil, &d))
	f.Add([]byte{0x2c, 0x0d, 1, 1})
	f.Add([]byte{0x4c, 1, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := usage.ReadDay(b)
		if err != nil {
			return
		}
		again, err := usage.ReadDay(usage.AppendDay(nil, d))
		if err != nil || !bytes.Equal(usage.AppendDay(nil, again), usage.AppendDay(nil, d)) {
			t.Errorf("%x does not read back: %v", b, err)
		}
	})
}

func parsed(s string) amount.Amount {
	a, err := amount.Parse(s)
	if err != nil {
		panic(err)
	}
	return a
}
