package usage

import (
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

func pathOf(p *problem.Error) string {
	if p == nil {
		return ""
	}
	if p.Code != problem.Invalid || len(p.Fields) != 1 {
		return p.Error()
	}
	return p.Fields[0].Path
}

func text(value string) string {
	return string(properties.Append(nil,
		[]properties.Member{{Name: "p", Value: properties.Value{Kind: properties.String, Text: value}}}))
}

func TestEventCheck(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	frame := len(text(""))
	for _, c := range []struct {
		name   string
		want   string
		change func(*Event)
	}{
		{"plain", "", func(*Event) {}},
		{"without an id", "", func(e *Event) { e.ID = "" }},
		{"longest id", "", func(e *Event) { e.ID = strings.Repeat("i", MaxID) }},
		{"id too long", "id", func(e *Event) { e.ID = strings.Repeat("i", MaxID+1) }},
		{"id of 128 two-byte letters", "id", func(e *Event) { e.ID = strings.Repeat("é", 128) }},
		{"id in UTF-8", "", func(e *Event) { e.ID = strings.Repeat("é", 127) }},
		{"id not in UTF-8", "id", func(e *Event) { e.ID = "a\xff" }},
		{"id with NUL", "id", func(e *Event) { e.ID = "a\x00" }},
		{"id with NUL behind a letter of two bytes", "id", func(e *Event) { e.ID = "é\x00" }},
		{"id like a derived key", "id", func(e *Event) { e.ID = DerivedPrefix + "a" }},
		{"longest meter", "", func(e *Event) { e.Meter = long }},
		{"meter too long", "meter", func(e *Event) { e.Meter = long + "x" }},
		{"meter with NUL", "meter", func(e *Event) { e.Meter = "\x00" }},
		{"type too long", "type", func(e *Event) { e.Meter, e.Type = "", long+"x" }},
		{"type not in UTF-8", "type", func(e *Event) { e.Meter, e.Type = "", "\xc3" }},
		{"longest customer", "", func(e *Event) { e.Customer = long }},
		{"customer too long", "customer", func(e *Event) { e.Customer = long + "x" }},
		{"customer with NUL", "customer", func(e *Event) { e.Customer = "a\x00b" }},
		{"longest resource", "", func(e *Event) { e.Resource = long }},
		{"resource too long", "resource", func(e *Event) { e.Resource = long + "x" }},
		{"resource not in UTF-8", "resource", func(e *Event) { e.Resource = "\xed\xa0\x80" }},
		{"largest properties", "", func(e *Event) { e.Properties = text(strings.Repeat("p", MaxProperties-frame)) }},
		{"properties too large", "properties", func(e *Event) {
			e.Properties = text(strings.Repeat("p", MaxProperties-frame+1))
		}},
		{"properties with NUL", "properties", func(e *Event) { e.Properties = text("a\x00") }},
		{"properties with NUL behind a backslash", "properties", func(e *Event) { e.Properties = text("\\\x00") }},
		{"properties that spell NUL out", "", func(e *Event) { e.Properties = text(`a\u0000`) }},
		{"first moment", "", func(e *Event) { e.Time = calendar.MinMicros }},
		{"before it", "time", func(e *Event) { e.Time = calendar.MinMicros - 1 }},
		{"last moment", "", func(e *Event) { e.Time = calendar.MaxMicros }},
		{"after it", "time", func(e *Event) { e.Time = calendar.MaxMicros + 1 }},
		{"an impossible time that was not stated", "", func(e *Event) { e.Time, e.Given = -1, e.Given&^GivenTime }},
		{"a decoder's refusal", "qty", func(e *Event) { e.Invalid = problem.At("qty", "unknown field") }},
	} {
		e := Event{ID: "a", Meter: "calls", Customer: "c1", Quantity: amount.One,
			Given: GivenMeter | GivenCustomer | GivenTime}
		c.change(&e)
		if got := pathOf(e.Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCorrectionCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   string
		change func(*Event)
	}{
		{"plain", "", func(*Event) {}},
		{"longest reason", "", func(e *Event) { e.Reason = strings.Repeat("r", MaxReason) }},
		{"reason too long", "reason", func(e *Event) { e.Reason = strings.Repeat("r", MaxReason+1) }},
		{"reason with NUL", "reason", func(e *Event) { e.Reason = "\x00" }},
		{"longest target", "", func(e *Event) { e.Corrects = DerivedPrefix + strings.Repeat("i", MaxID) }},
		{"target too long", "corrects", func(e *Event) { e.Corrects = DerivedPrefix + strings.Repeat("i", MaxID+1) }},
		{"target not in UTF-8", "corrects", func(e *Event) { e.Corrects = "\xff" }},
		{"id too long", "id", func(e *Event) { e.ID = strings.Repeat("i", MaxID+1) }},
		{"empty properties, stated", "properties", func(e *Event) { e.Given |= GivenProperties }},
		{"quantity left out", "quantity", func(e *Event) { e.Given = 0 }},
	} {
		e := Event{ID: "k", Corrects: "a", Reason: "refund", Quantity: amount.FromInt(-1), Given: GivenQuantity}
		c.change(&e)
		if got := pathOf(e.Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

func TestKeyIDs(t *testing.T) {
	for id, k := range map[string]Key{
		"a": {ClientSpace, "a"}, "": {ClientSpace, ""}, "key": {ClientSpace, "key"}, "Key:a": {ClientSpace, "Key:a"},
		"key:a": {DerivedSpace, "a"}, "key:": {DerivedSpace, ""}, "key:key:a": {DerivedSpace, "key:a"},
	} {
		if got := KeyOfID(id); got != k || got.ID() != id {
			t.Errorf("%q was read as %+v and written as %q", id, got, got.ID())
		}
	}
}

func TestAdjustmentIDs(t *testing.T) {
	for _, c := range []struct {
		id    string
		seq   uint64
		meter uint32
	}{
		{"adj_1", 1, 0}, {"adj_18446744073709551615", 1<<64 - 1, 0}, {"adj_7_1", 7, 1},
		{"adj_7_4294967295", 7, 1<<32 - 1},
	} {
		written := ManualID(c.seq)
		if c.meter != 0 {
			written = LateID(c.seq, c.meter)
		}
		seq, number, ok := ParseAdjustmentID(c.id)
		if written != c.id || !ok || seq != c.seq || number != c.meter {
			t.Errorf("%s: written as %s, read as %d, %d, %v", c.id, written, seq, number, ok)
		}
	}
	for _, bad := range []string{
		"", "adj", "adj_", "1", "adj_x", "adj_-1", "adj_+1", "adj_1.0", "adj_18446744073709551616", "ADJ_1", "adj_1 ",
		" adj_1",
		"adj_1_", "adj_1_0", "adj_1_x", "adj_1_-1", "adj_1_4294967296", "adj_1_1_1", "adj__1",
	} {
		if seq, number, ok := ParseAdjustmentID(bad); ok {
			t.Errorf("%q was read as %d, %d", bad, seq, number)
		}
	}
}

func TestAdjustmentCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   string
		change func(*Adjustment)
	}{
		{"plain", "", func(*Adjustment) {}},
		{"no customer", "customer", func(a *Adjustment) { a.Customer = "" }},
		{"longest customer", "", func(a *Adjustment) { a.Customer = strings.Repeat("c", MaxName) }},
		{"customer too long", "customer", func(a *Adjustment) { a.Customer = strings.Repeat("c", MaxName+1) }},
		{"customer with NUL", "customer", func(a *Adjustment) { a.Customer = "\x00" }},
		{"no reason", "reason", func(a *Adjustment) { a.Reason = "" }},
		{"longest reason", "", func(a *Adjustment) { a.Reason = strings.Repeat("r", MaxReason) }},
		{"reason too long", "reason", func(a *Adjustment) { a.Reason = strings.Repeat("r", MaxReason+1) }},
		{"reason not in UTF-8", "reason", func(a *Adjustment) { a.Reason = "\xff" }},
		{"nothing", "amount", func(a *Adjustment) { a.Amount = amount.Zero }},
		{"too much", "amount", func(a *Adjustment) { a.Amount = MaxAdjustment }},
		{"too little", "amount", func(a *Adjustment) { a.Amount = MaxAdjustment.Neg() }},
	} {
		a := Adjustment{Customer: "c1", Reason: "goodwill", Amount: amount.FromInt(-1)}
		c.change(&a)
		if got := pathOf(a.Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

// A row shows the worst of its outcomes: adjusted before overage, and overage beside it.
func TestRowStatus(t *testing.T) {
	late, over, plain := Outcome{Why: TooLate}, Outcome{Overage: true}, Outcome{}
	for _, c := range []struct {
		outcomes []Outcome
		want     Status
		over     bool
	}{
		{[]Outcome{plain}, Accepted, false}, {[]Outcome{plain, plain}, Accepted, false},
		{[]Outcome{plain, late}, Adjusted, false},
		{[]Outcome{over, plain}, Overage, true}, {[]Outcome{over, late}, Adjusted, true},
		{[]Outcome{late, over}, Adjusted, true},
		{[]Outcome{{Why: PeriodClosed, Overage: true}}, Adjusted, true}, {[]Outcome{{Why: TargetWas}}, Adjusted, false},
	} {
		r := Row{Outcomes: c.outcomes}
		if r.Status() != c.want || r.Over() != c.over {
			t.Errorf("%+v: %s, over %v", c.outcomes, r.Status(), r.Over())
		}
	}
}

func TestParseStatusKnowsWhatARowCanHave(t *testing.T) {
	for s := Accepted; s <= Rejected; s++ {
		kept := s == Accepted || s == Adjusted || s == Overage
		if got, ok := ParseStatus(s.String()); ok != kept || ok && got != s {
			t.Errorf("%s was read as %v, %v", s, got, ok)
		}
	}
}
