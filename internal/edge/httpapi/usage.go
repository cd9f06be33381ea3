package httpapi

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the machine may have no zones of its own, or old ones

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/windows"
)

// maxConditions bounds the properties that one query filters by.
const maxConditions = 8

// getUsage serves GET /v1/usage. An answer without limit is whole: a report whose first part looks like all of it would
// be billed.
func getUsage(x *exchange) error {
	q, err := x.query("meter", "customer", "resource", anyProperty, "from", "to", "window", "fill", "group_by", "timezone", "as_of", "limit", "cursor")
	if err != nil {
		return err
	}
	wanted, err := q.usage()
	if err != nil {
		return err
	}
	if q.get("limit") == "" && q.get("cursor") == "" {
		report, err := x.s.options.Windows.Usage(x.r.Context(), x.caller.Tenant, wanted)
		if err != nil {
			return err
		}
		return x.report(q, &wanted, report)
	}
	limit, err := q.limit()
	if err != nil {
		return err
	}
	place, err := q.windowPlace()
	if err != nil {
		return err
	}
	report, err := x.s.options.Windows.Page(x.r.Context(), x.caller.Tenant, wanted, place, limit)
	if err != nil {
		return err
	}
	return x.report(q, &wanted, report)
}

// usage reads which usage is wanted.
func (q query) usage() (windows.Query, error) {
	out := windows.Query{Meter: q.get("meter"), Customer: q.get("customer"), Zone: time.UTC}
	var err error
	if out.AsOf, err = q.asOf(); err != nil {
		return out, err
	}
	if out.From, err = q.moment("from"); err != nil {
		return out, err
	}
	if out.To, err = q.moment("to"); err != nil {
		return out, err
	}
	if name := q.get("window"); name != "" {
		var ok bool
		if out.Step, ok = calendar.ParseStep(name); !ok {
			return out, problem.At("window", "must be minute, hour, day, week or month; without it the range is one window")
		}
	}
	if fill := q.get("fill"); fill != "" {
		if fill != "zero" {
			return out, problem.At("fill", "must be zero; without it windows in which nothing counts are left out")
		}
		out.Fill = true
	}
	if name := q.get("timezone"); name != "" {
		if out.Zone, err = zone(name); err != nil {
			return out, err
		}
	}
	if out.GroupBy, err = dimensions(q.get("group_by")); err != nil {
		return out, err
	}
	if resource := q.get("resource"); resource != "" {
		out.Where = append(out.Where, usage.Condition{Dimension: usage.Dimension{Of: usage.ByResource}, Text: resource})
	}
	if len(q.properties) > maxConditions {
		return out, problem.At(q.properties[maxConditions], "at most %d properties can be filtered by", maxConditions)
	}
	for _, name := range q.properties {
		d, _ := usage.ParseDimension(name)
		out.Where = append(out.Where, usage.Condition{Dimension: d, Text: q.get(name)})
	}
	return out, nil
}

// zone finds a time zone by its IANA name. The machine's own has none: an answer must not depend on where the server
// stands.
func zone(name string) (*time.Location, error) {
	z, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, problem.At("timezone", "must be the IANA name of a time zone, for example Europe/Berlin")
	}
	return z, nil
}

// dimensions reads what to group by, in the order of the answer's groups.
func dimensions(text string) ([]usage.Dimension, error) {
	if text == "" {
		return nil, nil
	}
	var out []usage.Dimension
	for name := range strings.SplitSeq(text, ",") {
		d, ok := usage.ParseDimension(name)
		switch {
		case !ok:
			return nil, problem.At("group_by", "%s is not customer, resource or properties.<name>", strconv.Quote(name))
		case slices.Contains(out, d):
			return nil, problem.At("group_by", "%s stands twice", strconv.Quote(name))
		case len(out) == windows.MaxGroupBy:
			return nil, problem.At("group_by", "at most %d can be grouped by", windows.MaxGroupBy)
		}
		out = append(out, d)
	}
	return out, nil
}

// windowPlace reads where a page begins: the row that all pages show, the window, and how much of it was given.
func (q query) windowPlace() (*windows.Place, error) {
	b, err := q.place()
	if err != nil || b == nil {
		return nil, err
	}
	seq, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errCursor
	}
	b = b[n:]
	from, n := binary.Varint(b)
	if n <= 0 {
		return nil, errCursor
	}
	b = b[n:]
	given, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return nil, errCursor
	}
	return &windows.Place{Seq: seq, From: calendar.Micros(from), Given: given}, nil
}

func windowCursor(p *windows.Place) []byte {
	if p == nil {
		return nil
	}
	b := binary.AppendUvarint(nil, p.Seq)
	b = binary.AppendVarint(b, int64(p.From))
	return binary.AppendUvarint(b, p.Given)
}
