// Package meter holds the rules of meters: what a meter counts, how its facts are keyed, how late they may be,
// and which of its settings may still change after its first event.
package meter

import (
	"slices"
	"strings"
	"time"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Defaults and bounds of a meter's settings.
const (
	DefaultLateness = 48 * time.Hour
	DefaultFuture   = time.Hour
	MaxLateness     = 366 * 24 * time.Hour
	MaxFuture       = 366 * 24 * time.Hour
	MaxBucket       = 24 * time.Hour
	MaxSlug         = 63
	MaxName         = 200
	MaxKeyFields    = 16
	MaxProperty     = 255
)

// Aggregation is how rows become a number.
type Aggregation uint8

// The aggregations.
const (
	Sum Aggregation = iota + 1
	Count
	Min
	Max
	Last
	Unique
	Avg
)

var aggregationNames = [...]string{Sum: "sum", Count: "count", Min: "min", Max: "max", Last: "last", Unique: "unique",
	Avg: "avg"}

// ParseAggregation reads a name of the contract.
func ParseAggregation(s string) (Aggregation, *problem.Error) {
	for i, n := range aggregationNames {
		if n != "" && n == s {
			return Aggregation(i), nil
		}
	}
	return 0, problem.At("aggregation", "%q is not one of sum, count, min, max, last, unique, avg", s)
}

func (a Aggregation) String() string { return aggregationNames[a] }

// parseName reads one of the names that a setting's values have, in their order; empty is the first.
func parseName[T ~uint8](path, s string, names []string) (T, *problem.Error) {
	if s == "" {
		return 0, nil
	}
	i := slices.Index(names, s)
	if i < 0 {
		return 0, problem.At(path, "%q is not one of %s", s, strings.Join(names, ", "))
	}
	return T(i), nil
}

// Late says what becomes of a fact older than the lateness window.
type Late uint8

// The policies for late facts.
const (
	Adjust Late = iota // kept, marked, outside the on-time fold
	Reject
)

var lateNames = [...]string{"adjust", "reject"}

func (l Late) String() string { return lateNames[l] }

// ParseLate reads a name of the contract; empty is the default.
func ParseLate(s string) (Late, *problem.Error) { return parseName[Late]("late", s, lateNames[:]) }

// KeyPolicy says who names a fact.
type KeyPolicy uint8

// The key policies.
const (
	ClientKey  KeyPolicy = iota // the client's id; derived when absent
	DerivedKey                  // the server only
)

var keyPolicyNames = [...]string{"client", "derived"}

func (k KeyPolicy) String() string { return keyPolicyNames[k] }

// ParseKeyPolicy reads a name of the contract; empty is the default.
func ParseKeyPolicy(s string) (KeyPolicy, *problem.Error) {
	return parseName[KeyPolicy]("key_policy", s, keyPolicyNames[:])
}

// Rounding says what becomes of decimals past the twelfth.
type Rounding uint8

// The roundings.
const (
	Exact Rounding = iota // refused
	HalfEven
)

func (r Rounding) String() string { return [...]string{"", "half_even"}[r] }

// ParseRounding reads a name of the contract; empty is the default.
func ParseRounding(s string) (Rounding, *problem.Error) {
	switch s {
	case "":
		return Exact, nil
	case "half_even":
		return HalfEven, nil
	}
	return 0, problem.At("rounding", "%q is not half_even; leave it out to refuse inexact numbers", s)
}

// MissingValue says what becomes of an event that comes by its type without the property that the meter takes.
type MissingValue uint8

// The policies for missing values.
const (
	RefuseMissing MissingValue = iota // the event is refused
	SkipMissing                       // the event does not feed this meter
)

var missingValueNames = [...]string{"refuse", "skip"}

func (m MissingValue) String() string { return missingValueNames[m] }

// ParseMissingValue reads a name of the contract; empty is the default.
func ParseMissingValue(s string) (MissingValue, *problem.Error) {
	return parseName[MissingValue]("missing_value", s, missingValueNames[:])
}

// Meter is one thing that is counted.
type Meter struct {
	Number         uint32 // small and stable within the tenant, in order of creation from 1
	Slug           string
	Name           string
	Aggregation    Aggregation
	EventType      string
	ValueProperty  string
	UniqueProperty string
	Lateness       time.Duration
	Late           Late
	KeyPolicy      KeyPolicy
	KeyFields      []string // empty: DefaultKeyFields
	KeyBucket      time.Duration
	Future         time.Duration
	WidestFuture   time.Duration // the longest Future that it had before, if that is longer; see Ahead
	Rounding       Rounding
	MissingValue   MissingValue
	Filter         Filter
	CreatedAt      calendar.Micros
}

// DefaultKeyFields name a fact when the meter does not say otherwise.
var DefaultKeyFields = []string{"meter", "customer", "resource", "time"}

// PropertyField is the prefix of a key field that names a property.
const PropertyField = "properties."

// Key returns the fields of derived keys.
func (m *Meter) Key() []string {
	if len(m.KeyFields) == 0 {
		return DefaultKeyFields
	}
	return m.KeyFields
}

// Ahead is how far ahead of its commit an event of the meter can be: the longest future bound that it ever had. Scans
// and retention rely on it, so that it never shrinks.
func (m *Meter) Ahead() time.Duration { return max(m.Future, m.WidestFuture) }

// Follow makes the meter remember what those before it allowed. Whoever changes a meter calls it.
func (m *Meter) Follow(before *Meter) {
	widest := max(before.Ahead(), m.Ahead())
	if m.WidestFuture = 0; widest > m.Future {
		m.WidestFuture = widest
	}
}

// Check judges the whole meter.
func (m *Meter) Check() *problem.Error {
	if p := tenant.CheckID("slug", m.Slug, MaxSlug); p != nil {
		return p
	}
	if m.Aggregation < Sum || m.Aggregation > Avg {
		return problem.At("aggregation", "required: one of sum, count, min, max, last, unique, avg")
	}
	if p := tenant.CheckName("name", m.Name, MaxName); p != nil {
		return p
	}
	for _, f := range [...]struct{ path, value string }{
		{"event_type", m.EventType}, {"value_property", m.ValueProperty}, {"unique_property", m.UniqueProperty},
	} {
		if p := tenant.CheckName(f.path, f.value, MaxProperty); p != nil {
			return p
		}
	}
	if m.Aggregation == Unique && m.UniqueProperty == "" {
		return problem.At("unique_property", "required for the aggregation unique")
	}
	if m.Aggregation != Unique && m.UniqueProperty != "" {
		return problem.At("unique_property", "only for the aggregation unique")
	}
	if m.Aggregation == Unique && m.ValueProperty != "" {
		return problem.At("value_property", "the aggregation unique counts members of unique_property, not values")
	}
	if p := m.checkTimes(); p != nil {
		return p
	}
	if p := m.checkFed(); p != nil {
		return p
	}
	return m.checkKey()
}

// checkFed judges which events of its type the meter takes.
func (m *Meter) checkFed() *problem.Error {
	if m.MissingValue == SkipMissing && (m.EventType == "" || m.ValueProperty == "" && m.UniqueProperty == "") {
		return problem.At("missing_value",
			"skip needs an event_type, and a value_property or unique_property that may be missing")
	}
	if len(m.Filter) > 0 && m.EventType == "" {
		return problem.At("filter", "only with an event_type: it says which events of that type the meter takes")
	}
	return m.Filter.check()
}

func (m *Meter) checkTimes() *problem.Error {
	if m.Lateness < 0 || m.Lateness > MaxLateness {
		return problem.At("lateness", "between 0 and %s", MaxLateness)
	}
	if m.Future < 0 || m.Future > MaxFuture {
		return problem.At("future", "between 0 and %s", MaxFuture)
	}
	if m.KeyBucket < 0 || m.KeyBucket > MaxBucket || m.KeyBucket%time.Microsecond != 0 {
		return problem.At("key_bucket", "between 1µs and %s, in whole microseconds", MaxBucket)
	}
	return nil
}

func (m *Meter) checkKey() *problem.Error {
	plain := m.KeyPolicy == ClientKey && len(m.KeyFields) == 0 && m.KeyBucket == 0
	if m.EventType != "" && !plain {
		return problem.At("key_policy", "a meter with event_type has the plain client key policy: leave out "+
			"key_policy, key_fields and key_bucket")
	}
	if len(m.KeyFields) > MaxKeyFields {
		return problem.At("key_fields", "at most %d fields", MaxKeyFields)
	}
	seen := map[string]bool{}
	for _, f := range m.KeyFields {
		name, isProperty := strings.CutPrefix(f, PropertyField)
		switch {
		case seen[f]:
			return problem.At("key_fields", "%q stands twice", f)
		case isProperty && name != "" && tenant.CheckName("key_fields", name, MaxProperty) == nil:
		case f == "meter" || f == "customer" || f == "resource" || f == "time":
		default:
			return problem.At("key_fields", "%q is not one of meter, customer, resource, time, properties.<name>", f)
		}
		seen[f] = true
	}
	if m.KeyBucket != 0 && len(m.KeyFields) > 0 && !seen["time"] {
		return problem.At("key_bucket", "key_fields must include time for a bucket to mean anything")
	}
	return nil
}

// CheckChange judges going from m to next: slug and creation never change, what shapes past rows is fixed once used.
func (m *Meter) CheckChange(next *Meter, used bool) *problem.Error {
	if m.Slug != next.Slug || m.Number != next.Number || m.CreatedAt != next.CreatedAt {
		return problem.At("slug", "a meter keeps its slug: create another meter")
	}
	if p := next.Check(); p != nil {
		return p
	}
	if !used {
		return nil
	}
	fixed := [...]struct {
		path    string
		changed bool
	}{
		{"aggregation", m.Aggregation != next.Aggregation},
		{"event_type", m.EventType != next.EventType},
		{"value_property", m.ValueProperty != next.ValueProperty},
		{"unique_property", m.UniqueProperty != next.UniqueProperty},
		{"key_policy", m.KeyPolicy != next.KeyPolicy},
		{"key_fields", strings.Join(m.Key(), "\x00") != strings.Join(next.Key(), "\x00")},
		{"key_bucket", m.KeyBucket != next.KeyBucket},
		{"rounding", m.Rounding != next.Rounding},
		{"filter", !m.Filter.Equal(next.Filter)},
	}
	for _, f := range fixed {
		if f.changed {
			return &problem.Error{Code: problem.Fixed,
				Detail: f.path + " is fixed after the meter's first event: create another meter",
				Fields: []problem.Field{{Path: f.path, Message: "fixed after the first event"}}}
		}
	}
	return nil
}
