package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// What the facts of a life are made of: few enough of everything that facts meet.
var (
	lifeCustomers = []string{"c", "c", "c", "d", "é'\""}
	lifeValues    = []string{"1", "2", "2", "0", "0.000000000001", "7.25", "999999999999999.999999999999"}
	lifeTimes     = []time.Duration{0, 0, time.Microsecond, time.Minute, time.Hour, 2 * time.Hour, 47 * time.Hour,
		49 * time.Hour, 100 * time.Hour, 20 * 24 * time.Hour, 21 * 24 * time.Hour, -30 * time.Minute, -2 * time.Hour,
		-20 * 24 * time.Hour}
	// Each name is of a fact that feeds the meter of that name, or the meters of that type.
	lifeTargets = []string{mixType, mixType, mixType, "calls", "calls", "strict", "hits", "views", "rounded", "low",
		"gauge", "people"}
)

// lifeMeters has every aggregation, key policy and late policy.
func lifeMeters() []meter.Meter {
	strict, hits, views, rounded, people := NewMeter("strict", meter.Sum), NewMeter("hits", meter.Count),
		NewMeter("views", meter.Avg), NewMeter("rounded", meter.Max), NewMeter("people", meter.Unique)
	strict.Late, strict.Lateness = meter.Reject, time.Hour
	hits.KeyPolicy, hits.Lateness = meter.DerivedKey, time.Hour
	views.KeyPolicy, views.KeyFields, views.KeyBucket = meter.DerivedKey, []string{"customer", "properties.u", "time"},
		time.Hour
	rounded.Rounding = meter.HalfEven
	ahead := NewMeter("gauge", meter.Last)
	ahead.Future = 30 * 24 * time.Hour
	people.UniqueProperty, people.Lateness = "u", time.Hour
	// Two more that the type feeds: not every event, and not always for the same reason.
	picky, some := NewMeter("m-picky", meter.Sum), NewMeter("m-some", meter.Max)
	picky.EventType, picky.ValueProperty, picky.Filter = mixType, "v",
		meter.Filter{"properties.u": {{Kind: properties.String, Text: "u1"}}}
	some.EventType, some.ValueProperty, some.MissingValue = mixType, "w", meter.SkipMissing
	return append(mixMeters(), picky, some, NewMeter("calls", meter.Sum), strict, hits, views, rounded,
		NewMeter("low", meter.Min), ahead, people)
}

// event draws the next event. What an id says is fixed for the life, so that most repetitions are duplicates; a twist
// makes the others conflicts, bad events and corrections.
func (l *life) event(id string) usage.Event {
	n := rapid.IntRange(0, idsInALife-1).Draw(l.T, "fact")
	e := l.fact(n)
	switch rapid.IntRange(0, 15).Draw(l.T, "twist") {
	case 8:
		e.Quantity = Amount("3")
	case 9:
		e.Customer = "d"
	case 10:
		e = Untimed(e)
	case 11:
		return l.broken(e)
	case 12:
		e.ID = ""
	case 13, 14, 15:
		return l.correction(id, n)
	}
	return e
}

// fact is what the id of that number says in this life.
func (l *life) fact(n int) usage.Event {
	x := scramble(l.content + uint64(n))
	pick := func(of int) int {
		p := int(x % uint64(of))
		x = scramble(x)
		return p
	}
	id, target, customer := fmt.Sprint("e", n), lifeTargets[pick(len(lifeTargets))],
		lifeCustomers[pick(len(lifeCustomers))]
	at, value, member := Ago(lifeTimes[pick(len(lifeTimes))]), lifeValues[pick(len(lifeValues))],
		fmt.Sprint("u", pick(3))
	if target == mixType {
		if pick(3) == 0 {
			return Call(id, mixType, customer, at, Number("v", value), Text("u", member),
				Number("w", lifeValues[pick(len(lifeValues))]))
		}
		return mix(id, customer, at, value, member)
	}
	if target == "hits" && pick(8) > 0 {
		value = "1" // most clients know that a count meter takes no other
	}
	e := With(Fact(id, target, customer, at, value), Text("u", member))
	if pick(2) == 0 {
		e = On(e, fmt.Sprint("r", pick(2)))
	}
	if pick(8) == 0 {
		e.Unrounded = "0.0000000000025"
	}
	return e
}

// scramble spreads a number over all bits (the finalizer of SplitMix64).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// broken spoils an event in one of the ways that clients do.
func (l *life) broken(e usage.Event) usage.Event {
	switch rapid.IntRange(0, 6).Draw(l.T, "fault") {
	case 0:
		e.Meter, e.Type, e.Given = "nothing", "", e.Given|usage.GivenMeter
	case 1:
		e.Customer = "a\x00b"
	case 2:
		e.Quantity = Amount("-1")
	case 3:
		e.Quantity = Amount("1000000000000000")
	case 4:
		e.Properties, e.Given = "", e.Given&^usage.GivenProperties
	case 5:
		e.ID = usage.DerivedPrefix + e.ID
	default:
		e.Invalid = problem.At("qty", "unknown field")
	}
	return e
}

// correction corrects something that was kept, mostly by what is there to be taken, or sends an earlier one again.
func (l *life) correction(id string, n int) usage.Event {
	if sent := l.fixes[id]; len(sent) > 0 && rapid.IntRange(0, 4).Draw(l.T, "again") == 0 {
		return sent[rapid.IntRange(0, len(sent)-1).Draw(l.T, "which")]
	}
	target := kept{"nothing", Fact("nothing", "calls", "c", Ago(0), "1")}
	if of := l.kept[id]; len(of) > 0 {
		target = of[rapid.IntRange(0, len(of)-1).Draw(l.T, "target")]
	}
	slug, whole := "", target.event.Quantity
	if target.event.Type == mixType {
		slug = rapid.SampledFrom(append(mixSlugs(), "m-unique", "")).Draw(l.T, "of")
		if v, ok := properties.Lookup(target.event.Properties, "v"); ok && slug != "m-unique" {
			whole = Amount(v.Text)
		}
	}
	by := rapid.SampledFrom([]string{whole.Neg().String(), whole.Neg().String(), whole.String(), "-0.000000000001",
		"-1", "1", "5", "0"}).Draw(l.T, "by")
	c := Correction(fmt.Sprint("fix", n), target.id, by)
	if slug != "" {
		c = OfMeter(c, slug)
	}
	l.fixes[id] = append(l.fixes[id], c)
	return c
}
