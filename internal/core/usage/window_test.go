package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// metered is one row as the plain reference keeps it.
type metered struct {
	customer, resource, properties, member, corrects string
	seq                                              uint64
	key                                              Key
	time                                             calendar.Micros
	value, base                                      amount.Amount
	why                                              Why
}

var everyAggregation = []meter.Aggregation{meter.Sum, meter.Count, meter.Min, meter.Max, meter.Last, meter.Unique,
	meter.Avg}

// drawRows makes facts and corrections, few enough of everything that they meet.
func drawRows(t *rapid.T) []metered {
	var rows []metered
	left := map[Key]amount.Amount{}
	for i := range rapid.IntRange(0, 40).Draw(t, "rows") {
		id := fmt.Sprint("e", i)
		if facts := slices.DeleteFunc(slices.Clone(rows),
			func(r metered) bool { return r.corrects != "" }); len(facts) > 0 &&
			rapid.IntRange(0, 3).Draw(t, "correct") == 0 {
			to := rapid.SampledFrom(facts).Draw(t, "target")
			by := rapid.SampledFrom([]amount.Amount{left[to.key].Neg(), amount.One, amount.One.Neg()}).Draw(t, "by")
			after, _ := left[to.key].Add(by)
			if by.IsZero() || after.Sign() < 0 {
				continue
			}
			left[to.key] = after
			rows = append(rows, metered{to.customer, to.resource, "", to.member, to.key.ID(), uint64(i + 1),
				Key{ClientSpace, id}, to.time, by, to.value, to.why})
			continue
		}
		r := metered{
			customer: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "customer"),
			resource: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "resource"),
			properties: rapid.SampledFrom([]string{"", `{"r":"eu"}`, `{"r":1}`, `{"r":"1"}`, `{"r":null}`,
				`{"q":true,"r":true}`}).Draw(t, "properties"),
			member: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "member"), seq: uint64(i + 1),
			key:   Key{rapid.SampledFrom([]Space{ClientSpace, DerivedSpace}).Draw(t, "space"), id},
			time:  calendar.Micros(rapid.IntRange(0, 29).Draw(t, "time")),
			value: amount.FromInt(rapid.Int64Range(0, 3).Draw(t, "value")),
			why:   rapid.SampledFrom([]Why{OnTime, OnTime, TooLate}).Draw(t, "why"),
		}
		left[r.key] = r.value
		rows = append(rows, r)
	}
	return rows
}

// pieces cuts rows, in any order, into pieces of one customer each.
func pieces(t *rapid.T, rows []metered) []*Piece {
	var out []*Piece
	for _, r := range rapid.Permutation(rows).Draw(t, "order") {
		if len(out) == 0 || out[len(out)-1].Customer != r.customer || rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
			out = append(out, &Piece{Customer: r.customer})
		}
		p := out[len(out)-1]
		p.Seq, p.Time, p.Value, p.Why, p.Key = append(p.Seq, r.seq), append(p.Time, r.time), append(p.Value, r.value),
			append(p.Why, r.why), append(p.Key, r.key)
		p.Corrects, p.Base = append(p.Corrects, r.corrects), append(p.Base, r.base)
		p.Resource, p.Properties, p.Member = append(p.Resource, r.resource), append(p.Properties, r.properties),
			append(p.Member, r.member)
	}
	for _, p := range out {
		if !slices.ContainsFunc(p.Corrects, func(s string) bool { return s != "" }) {
			p.Corrects, p.Base = nil, nil
		}
	}
	return out
}

// effectiveRows are the facts that count, with what corrections left of them.
func effectiveRows(rows []metered) []metered {
	var out []metered
	for _, r := range rows {
		if r.corrects != "" {
			continue
		}
		touched := false
		for _, c := range rows {
			if c.corrects == r.key.ID() {
				r.value, _ = r.value.Add(c.value)
				touched = true
			}
		}
		if !touched || r.value.Sign() > 0 {
			out = append(out, r)
		}
	}
	return out
}

// valueOf is the definition of each aggregation, read off a list that is not empty.
func valueOf(rows []metered, a meter.Aggregation) amount.Amount {
	f := &Fold{}
	members := map[string]bool{}
	for _, r := range rows {
		f.Add(r.value, r.time, r.key)
		members[r.member] = true
	}
	f.Members = int64(len(members))
	return f.Value(a)
}

func labeled(r metered, dims []Dimension) string {
	out := ""
	for _, d := range dims {
		switch d.Of {
		case ByCustomer:
			out += "!" + r.customer
		case ByResource:
			out += "!" + r.resource
		default:
			v, _ := properties.Lookup(r.properties, d.Name)
			if v.Kind != properties.Null && v.Kind != 0 {
				out += fmt.Sprintf("!%d%s", v.Kind, v.Text)
			} else {
				out += "!"
			}
		}
	}
	return out
}

func shown(w Window, dims []Dimension) string {
	out := fmt.Sprintf("%d-%d ", w.From, w.To)
	for i, l := range w.Group {
		if l.Kind != 0 && dims[i].Of == ByProperty {
			out += fmt.Sprintf("!%d%s", l.Kind, l.Text)
		} else {
			out += "!" + l.Text
		}
	}
	return out + " " + w.Value.String()
}

// Given any rows in any order and pieces, when they are folded into any grid, then every cell is what its rows alone
// give.
func TestWindowsAreTheFoldOfTheirRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := drawRows(t)
		dims := rapid.SampledFrom([][]Dimension{nil, {{Of: ByCustomer}}, {{Of: ByResource}}, {{ByProperty, "r"}},
			{{Of: ByCustomer}, {ByProperty, "r"}, {Of: ByResource}}}).Draw(t, "group by")
		where := rapid.SampledFrom([][]Condition{nil, nil, {{Dimension{Of: ByResource}, "x"}},
			{{Dimension{ByProperty, "r"}, "1"}}}).Draw(t, "where")
		cuts := rapid.SampledFrom([][]calendar.Micros{{0, 30}, {0, 10, 20, 30}, {0, 1, 2, 3, 15, 29, 30}}).Draw(t,
			"cuts")
		for _, a := range everyAggregation {
			w := NewWindows(Grid{Cuts: cuts, Aggregation: a, GroupBy: dims, Where: where, MaxCells: 1000,
				MaxMembers: 1000, MaxCorrected: 1000})
			for again := true; again; again = w.Again() {
				for _, p := range pieces(t, rows) {
					if err := w.Add(p); err != nil {
						t.Fatal(err)
					}
				}
			}
			var got, want []string
			for x := range w.All() {
				got = append(got, shown(x, dims))
			}
			for i := range len(cuts) - 1 {
				cells := map[string][]metered{}
				for _, r := range effectiveRows(rows) {
					if r.time >= cuts[i] && r.time < cuts[i+1] && passesPlainly(r, where) {
						cells[labeled(r, dims)] = append(cells[labeled(r, dims)], r)
					}
				}
				var names []string
				for name := range cells {
					names = append(names, name)
				}
				slices.SortFunc(names, strings.Compare)
				for _, name := range names {
					want = append(want, fmt.Sprintf("%d-%d %s %s", cuts[i], cuts[i+1], name, valueOf(cells[name], a)))
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s:\n got %v\nwant %v", a, got, want)
			}
		}
	})
}

func passesPlainly(r metered, where []Condition) bool {
	for _, c := range where {
		have := r.resource
		if c.Of == ByProperty {
			v, _ := properties.Lookup(r.properties, c.Name)
			have = v.Text
		}
		if have != c.Text {
			return false
		}
	}
	return true
}

// Given any rows, when a counter is made anew from them, then it is what the rows up to then give, also at the close.
func TestRecountIsTheFoldOfItsRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := drawRows(t)
		closed := rapid.Uint64Range(0, uint64(len(rows))).Draw(t, "closed")
		for _, a := range everyAggregation {
			r := NewRecount(a, closed)
			for again := true; again; again = r.Again() {
				for _, p := range pieces(t, rows) {
					r.Add(p)
				}
			}
			c := r.Counter(amount.One, amount.Zero, true)
			onTime, then := []metered{}, []metered{}
			for _, x := range rows {
				if x.why == OnTime {
					onTime = append(onTime, x)
				}
				if x.seq <= closed {
					then = append(then, x)
				}
			}
			for _, f := range []struct {
				name string
				got  amount.Amount
				rows []metered
			}{{"all", c.All().Value(a), effectiveRows(rows)}, {"on time", c.OnTime.Value(a), effectiveRows(onTime)},
				{"sealed", c.SealedAt, effectiveRows(then)}} {
				want := amount.Zero
				if len(f.rows) > 0 {
					want = valueOf(f.rows, a)
				}
				if f.name == "sealed" && closed == 0 {
					want = amount.Zero
				}
				if f.got != want {
					t.Fatalf("%s %s: %s, want %s", a, f.name, f.got, want)
				}
			}
			if c.Sealed != (closed > 0) || c.Manual != amount.One {
				t.Fatalf("sealed %t, manual %s", c.Sealed, c.Manual)
			}
		}
	})
}

func TestWindowsAreBounded(t *testing.T) {
	row := func(n int, customer, corrects string, value int64) *Piece {
		p := &Piece{Customer: customer, Time: []calendar.Micros{calendar.Micros(n)},
			Value: []amount.Amount{amount.FromInt(value)}, Key: []Key{{ClientSpace, fmt.Sprint(n)}},
			Member: []string{fmt.Sprint(n)}}
		if corrects != "" {
			p.Corrects, p.Base = []string{corrects}, []amount.Amount{amount.FromInt(1)}
		}
		return p
	}
	grid := Grid{Cuts: []calendar.Micros{0, 10}, GroupBy: []Dimension{{Of: ByCustomer}}, MaxCells: 2, MaxMembers: 2,
		MaxCorrected: 2}
	for _, c := range []struct {
		name string
		a    meter.Aggregation
		row  func(i int) *Piece
	}{
		{"cells", meter.Sum, func(i int) *Piece { return row(i, fmt.Sprint("c", i), "", 1) }},
		{"members", meter.Unique, func(i int) *Piece { return row(i, "c", "", 1) }},
		{"corrected", meter.Max, func(i int) *Piece { return row(i, "c", fmt.Sprint("e", i), 1) }},
	} {
		grid.Aggregation = c.a
		w := NewWindows(grid)
		for i := range 2 {
			if err := w.Add(c.row(i)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if err := w.Add(c.row(i)); err != nil {
				t.Errorf("%s again: %v", c.name, err)
			}
		}
		if err := w.Add(c.row(2)); !errors.Is(err, ErrTooMany) {
			t.Errorf("%s: %v, want too many", c.name, err)
		}
	}
	grid.Aggregation = meter.Sum
	w := NewWindows(grid)
	p := &Piece{Customer: "c", Time: []calendar.Micros{1, 2},
		Value: []amount.Amount{amount.FromInt(9e18), amount.FromInt(9e18)}}
	var err error
	for range 6_000_000 {
		if err = w.Add(p); err != nil {
			break
		}
	}
	if !problem.Is(err, problem.Overflow) {
		t.Errorf("a sum that does not fit: %v, want overflow", err)
	}
}

func TestDimensions(t *testing.T) {
	for _, text := range []string{"customer", "resource", "properties.region", "properties.a.b"} {
		if d, ok := ParseDimension(text); !ok || d.String() != text {
			t.Errorf("%s is read as %s", text, d)
		}
	}
	for _, text := range []string{"", "Customer", "meter", "properties", "properties.", "time"} {
		if _, ok := ParseDimension(text); ok {
			t.Errorf("%q is a dimension", text)
		}
	}
}
