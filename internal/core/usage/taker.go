package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
)

// taker is a meter that is fed by a type, its filter arranged for looking up.
type taker struct {
	*meter.Meter
	filter []condition
}

// condition is what a filter wants of one name.
type condition struct {
	name     string // of the contract
	property string // "": the resource
	values   map[properties.Value]bool
}

func newTaker(m *meter.Meter) *taker {
	t := &taker{Meter: m}
	for name, values := range m.Filter {
		c := condition{name: name, values: make(map[properties.Value]bool, len(values))}
		if name != meter.ResourceField {
			c.property = strings.TrimPrefix(name, meter.PropertyField)
		}
		for _, v := range values {
			c.values[properties.Value(v)] = true
		}
		t.filter = append(t.filter, c)
	}
	slices.SortFunc(t.filter, func(a, b condition) int { return strings.Compare(a.name, b.name) })
	return t
}

// takes reports whether an event of the meter's type feeds it.
func (t *taker) takes(e *Event) bool {
	return (len(t.filter) == 0 || t.mismatch(e) == "") && (t.MissingValue != meter.SkipMissing || t.missing(e) == "")
}

// mismatch is the first name of the filter under which the event has none of its values; "": it matches.
func (t *taker) mismatch(e *Event) string {
	for i := range t.filter {
		c := &t.filter[i]
		v := properties.Value{Kind: properties.String, Text: e.Resource}
		if c.property != "" {
			v, _ = properties.Lookup(e.Properties, c.property)
		}
		if !c.values[v] {
			return c.name
		}
	}
	return ""
}

// missing is the property that the meter takes and the event does not have; "": it has it, or none is taken.
func (t *taker) missing(e *Event) string {
	name := t.ValueProperty + t.UniqueProperty // a meter has one at most
	if name == "" {
		return ""
	}
	if v, ok := properties.Lookup(e.Properties, name); ok && v.Kind != properties.Null {
		return ""
	}
	return meter.PropertyField + name
}

// maxNamedTakers bounds the meters that a refusal explains.
const maxNamedTakers = 3

// fedNone refuses an event that feeds no meter: a row that bills nothing would look as if it had counted, and meters
// that are made later are not fed.
func fedNone(e *Event, takers []*taker) *problem.Error {
	p := &problem.Error{Code: problem.UnknownMeter, Detail: "no meter has the event_type " + quoted(e.Type),
		Fields: []problem.Field{{Path: "type", Message: "feeds no meter"}}}
	if len(takers) == 0 {
		return p
	}
	detail := "no meter takes this event of type " + quoted(e.Type)
	var why []string
	for i, t := range takers {
		if i == maxNamedTakers {
			why = append(why, fmt.Sprintf("and %d more", len(takers)-i))
			break
		}
		if name := t.mismatch(e); name != "" {
			why = append(why, fmt.Sprintf("%s has a filter that %s does not match", t.Slug, name))
		} else {
			why = append(why, fmt.Sprintf("%s skips events without %s", t.Slug, t.missing(e)))
		}
	}
	p.Detail = detail + ": " + strings.Join(why, "; ")
	return p.Discreetly(detail)
}
