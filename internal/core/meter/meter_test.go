package meter

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/problem"
)

// with is a plain sum meter after a change.
func with(change func(*Meter)) *Meter {
	m := &Meter{Number: 1, Slug: "api_calls", Aggregation: Sum, Lateness: DefaultLateness, Future: DefaultFuture}
	change(m)
	return m
}

func path(p *problem.Error) string {
	if p == nil {
		return ""
	}
	if len(p.Fields) != 1 {
		return p.Error()
	}
	return p.Fields[0].Path
}

func TestCheck(t *testing.T) {
	long := strings.Repeat("x", MaxProperty)
	for _, c := range []struct {
		name   string
		want   string
		change func(*Meter)
	}{
		{"plain", "", func(*Meter) {}},
		{"no slug", "slug", func(m *Meter) { m.Slug = "" }},
		{"slug with a slash", "slug", func(m *Meter) { m.Slug = "a/b" }},
		{"longest slug", "", func(m *Meter) { m.Slug = strings.Repeat("s", MaxSlug) }},
		{"slug too long", "slug", func(m *Meter) { m.Slug = strings.Repeat("s", MaxSlug+1) }},
		{"longest name", "", func(m *Meter) { m.Name = strings.Repeat("n", MaxName) }},
		{"name too long", "name", func(m *Meter) { m.Name = strings.Repeat("n", MaxName+1) }},

		{"event type", "", func(m *Meter) { m.EventType = "llm.call" }},
		{"longest event type", "", func(m *Meter) { m.EventType = long }},
		{"event type too long", "event_type", func(m *Meter) { m.EventType = long + "x" }},
		{"event type with NUL", "event_type", func(m *Meter) { m.EventType = "a\x00" }},
		{"value property", "", func(m *Meter) { m.ValueProperty = "tokens" }},
		{"value property too long", "value_property", func(m *Meter) { m.ValueProperty = long + "x" }},
		{"value property with NUL", "value_property", func(m *Meter) { m.ValueProperty = "\x00" }},

		{"unique", "", func(m *Meter) { m.Aggregation, m.UniqueProperty = Unique, "user" }},
		{"unique of nothing", "unique_property", func(m *Meter) { m.Aggregation = Unique }},
		{"unique property of a sum", "unique_property", func(m *Meter) { m.UniqueProperty = "user" }},
		{"unique property too long", "unique_property", func(m *Meter) {
			m.Aggregation, m.UniqueProperty = Unique, long+"x"
		}},
		{"unique with a value", "value_property", func(m *Meter) {
			m.Aggregation, m.UniqueProperty, m.ValueProperty = Unique, "user", "tokens"
		}},

		{"no lateness", "", func(m *Meter) { m.Lateness = 0 }},
		{"negative lateness", "lateness", func(m *Meter) { m.Lateness = -1 }},
		{"most lateness", "", func(m *Meter) { m.Lateness = MaxLateness }},
		{"too much lateness", "lateness", func(m *Meter) { m.Lateness = MaxLateness + 1 }},
		{"no future", "", func(m *Meter) { m.Future = 0 }},
		{"negative future", "future", func(m *Meter) { m.Future = -1 }},
		{"most future", "", func(m *Meter) { m.Future = MaxFuture }},
		{"too much future", "future", func(m *Meter) { m.Future = MaxFuture + 1 }},

		{"bucket", "", func(m *Meter) { m.KeyBucket = 5 * time.Second }},
		{"finest bucket", "", func(m *Meter) { m.KeyBucket = time.Microsecond }},
		{"bucket finer than time is kept", "key_bucket", func(m *Meter) { m.KeyBucket = 1500 * time.Nanosecond }},
		{"negative bucket", "key_bucket", func(m *Meter) { m.KeyBucket = -time.Second }},
		{"widest bucket", "", func(m *Meter) { m.KeyBucket = MaxBucket }},
		{"bucket too wide", "key_bucket", func(m *Meter) { m.KeyBucket = MaxBucket + time.Microsecond }},
		{"bucket over a time that is no key field", "key_bucket", func(m *Meter) {
			m.KeyBucket, m.KeyFields = time.Second, []string{"meter"}
		}},
		{"bucket over a time that is one", "", func(m *Meter) {
			m.KeyBucket, m.KeyFields = time.Second, []string{"time", "meter"}
		}},
	} {
		if got := path(with(c.change).Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCheckKeyFields(t *testing.T) {
	many := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = PropertyField + strings.Repeat("p", i+1)
		}
		return out
	}
	for _, c := range []struct {
		name string
		give []string
		want string
	}{
		{"the defaults, named", DefaultKeyFields, ""},
		{"url and fingerprint", []string{"meter", "customer", "properties.url", "properties.fingerprint", "time"}, ""},
		{"a property with dots", []string{"properties.a.b", "time"}, ""},
		{"a property named like a field", []string{"time", "properties.time"}, ""},
		{"an unknown field", []string{"quantity"}, "key_fields"},
		{"the client's id", []string{"id"}, "key_fields"},
		{"a bare property", []string{"url"}, "key_fields"},
		{"a property without a name", []string{"properties."}, "key_fields"},
		{"the longest property", []string{PropertyField + strings.Repeat("p", MaxProperty)}, ""},
		{"a property too long", []string{PropertyField + strings.Repeat("p", MaxProperty+1)}, "key_fields"},
		{"an empty one", []string{""}, "key_fields"},
		{"in upper case", []string{"Meter"}, "key_fields"},
		{"a field twice", []string{"time", "time"}, "key_fields"},
		{"a property twice", []string{"properties.a", "properties.a"}, "key_fields"},
		{"the most", many(MaxKeyFields), ""},
		{"too many", many(MaxKeyFields + 1), "key_fields"},
	} {
		m := with(func(m *Meter) { m.KeyFields = c.give })
		if got := path(m.Check()); got != c.want {
			t.Errorf("%s: refused at %q, want %q", c.name, got, c.want)
		}
	}
}

func TestKeyFallsBackToTheDefaultFields(t *testing.T) {
	if d := cmp.Diff([]string{"meter", "customer", "resource", "time"}, with(func(*Meter) {}).Key()); d != "" {
		t.Error(d)
	}
	own := []string{"time", "meter"}
	if d := cmp.Diff(own, with(func(m *Meter) { m.KeyFields = own }).Key()); d != "" {
		t.Error(d)
	}
}

// Facts of a type feed several meters and have one key, so none of these meters may have a key of its own.
func TestAMeterWithAnEventTypeHasThePlainClientKeyPolicy(t *testing.T) {
	for name, change := range map[string]func(*Meter){
		"derived": func(m *Meter) { m.KeyPolicy = DerivedKey },
		"fields":  func(m *Meter) { m.KeyFields = []string{"meter", "time"} },
		"bucket":  func(m *Meter) { m.KeyBucket = time.Second },
	} {
		m := with(change)
		if p := m.Check(); p != nil {
			t.Errorf("%s without event_type: %v", name, p)
		}
		m.EventType = "llm"
		if got := path(m.Check()); got != "key_policy" {
			t.Errorf("%s with event_type: refused at %q", name, got)
		}
	}
}

// changes lists every setting with a change of it that is legal in itself, and whether the first event fixes it.
var changes = []struct {
	path   string
	fixed  bool
	change func(*Meter)
}{
	{"aggregation", true, func(m *Meter) { m.Aggregation = Max }},
	{"event_type", true, func(m *Meter) { m.EventType = "llm" }},
	{"value_property", true, func(m *Meter) { m.ValueProperty = "tokens" }},
	{"key_policy", true, func(m *Meter) { m.KeyPolicy = DerivedKey }},
	{"key_fields", true, func(m *Meter) { m.KeyFields = []string{"meter", "time"} }},
	{"key_fields", true, func(m *Meter) { m.KeyFields = []string{"customer", "meter", "resource", "time"} }},
	{"key_bucket", true, func(m *Meter) { m.KeyBucket = time.Second }},
	{"rounding", true, func(m *Meter) { m.Rounding = HalfEven }},
	{"lateness", false, func(m *Meter) { m.Lateness = time.Hour }},
	{"late", false, func(m *Meter) { m.Late = Reject }},
	{"future", false, func(m *Meter) { m.Future = time.Minute }},
	{"name", false, func(m *Meter) { m.Name = "API calls" }},
}

func TestCheckChange(t *testing.T) {
	for _, c := range changes {
		before, after := with(func(*Meter) {}), with(c.change)
		if p := before.CheckChange(after, false); p != nil {
			t.Errorf("%s before the first event: %v", c.path, p)
		}
		p := before.CheckChange(after, true)
		if !c.fixed {
			if p != nil {
				t.Errorf("%s after the first event: %v", c.path, p)
			}
			continue
		}
		if p == nil || p.Code != problem.Fixed || path(p) != c.path {
			t.Errorf("%s after the first event: %v", c.path, p)
		}
		if p := after.CheckChange(before, true); p == nil || p.Code != problem.Fixed {
			t.Errorf("%s taken away after the first event: %v", c.path, p)
		}
	}
}

func TestUniquePropertyIsFixed(t *testing.T) {
	before := with(func(m *Meter) { m.Aggregation, m.UniqueProperty = Unique, "user" })
	after := with(func(m *Meter) { m.Aggregation, m.UniqueProperty = Unique, "device" })
	if p := before.CheckChange(after, false); p != nil {
		t.Error(p)
	}
	if p := before.CheckChange(after, true); p == nil || p.Code != problem.Fixed || path(p) != "unique_property" {
		t.Error(p)
	}
}

func TestNamingTheDefaultKeyFieldsIsNoChange(t *testing.T) {
	before, after := with(func(*Meter) {}), with(func(m *Meter) { m.KeyFields = DefaultKeyFields })
	if p := before.CheckChange(after, true); p != nil {
		t.Error(p)
	}
}

func TestAChangeMustLeaveALegalMeter(t *testing.T) {
	before, after := with(func(*Meter) {}), with(func(m *Meter) { m.Lateness = -1 })
	for _, used := range []bool{false, true} {
		if got := path(before.CheckChange(after, used)); got != "lateness" {
			t.Errorf("used %v: refused at %q", used, got)
		}
	}
}

func TestParse(t *testing.T) {
	for i, name := range []string{"sum", "count", "min", "max", "last", "unique", "avg"} {
		a, p := ParseAggregation(name)
		if p != nil || a != Sum+Aggregation(i) || a.String() != name {
			t.Errorf("%s was read as %d, %v", name, a, p)
		}
	}
	for give, want := range map[string]Late{"": Adjust, "adjust": Adjust, "reject": Reject} {
		if got, p := ParseLate(give); p != nil || got != want {
			t.Errorf("late %q was read as %s, %v", give, got, p)
		}
	}
	for give, want := range map[string]KeyPolicy{"": ClientKey, "client": ClientKey, "derived": DerivedKey} {
		if got, p := ParseKeyPolicy(give); p != nil || got != want {
			t.Errorf("key policy %q was read as %s, %v", give, got, p)
		}
	}
	for give, want := range map[string]Rounding{"": Exact, "half_even": HalfEven} {
		if got, p := ParseRounding(give); p != nil || got != want || got.String() != give {
			t.Errorf("rounding %q was read as %q, %v", give, got, p)
		}
	}
	if Adjust.String() != "adjust" || Reject.String() != "reject" || ClientKey.String() != "client" ||
		DerivedKey.String() != "derived" {
		t.Error("a name that the contract writes differs from the one it reads")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "Sum", "total", "sum "} {
		if a, p := ParseAggregation(s); a != 0 || path(p) != "aggregation" {
			t.Errorf("%q was read as an aggregation", s)
		}
	}
	for _, s := range []string{"Adjust", "drop", " "} {
		if _, p := ParseLate(s); path(p) != "late" {
			t.Errorf("%q was read as a late policy", s)
		}
	}
	for _, s := range []string{"server", "Client", " "} {
		if _, p := ParseKeyPolicy(s); path(p) != "key_policy" {
			t.Errorf("%q was read as a key policy", s)
		}
	}
	for _, s := range []string{"exact", "half_up", "HALF_EVEN"} {
		if _, p := ParseRounding(s); path(p) != "rounding" {
			t.Errorf("%q was read as a rounding", s)
		}
	}
}
