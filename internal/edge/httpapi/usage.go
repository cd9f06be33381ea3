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
	"github.com/tallystick/tallystick/internal/edge/httpkit"
	"github.com/tallystick/tallystick/internal/service/windows"
)

// maxConditions bounds the properties that one query filters by.
const maxConditions = 8

// getUsage serves GET /v1/usage. An answer without limit is whole: a report whose first part looks like all of it would
// be billed.
func (s *Server) getUsage(x *httpkit.Exchange) error {
	q, err := x.Query("meter", "customer", "resource", httpkit.AnyProperty, "from", "to", "window", "fill", "group_by",
		"timezone", "as_of", "limit", "cursor")
	if err != nil {
		return err
	}
	wanted, err := readUsage(q)
	if err != nil {
		return err
	}
	if q.Get("limit") == "" && q.Get("cursor") == "" {
		found, err := s.options.Windows.Usage(x.Context(), x.Caller.Tenant, wanted)
		if err != nil {
			return err
		}
		return answerReport(x, q, &wanted, found)
	}
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	place, err := windowPlace(q)
	if err != nil {
		return err
	}
	found, err := s.options.Windows.Page(x.Context(), x.Caller.Tenant, wanted, place, limit)
	if err != nil {
		return err
	}
	return answerReport(x, q, &wanted, found)
}

// readUsage reads which usage is wanted.
func readUsage(q httpkit.Query) (windows.Query, error) {
	out := windows.Query{Meter: q.Get("meter"), Customer: q.Get("customer"), Zone: time.UTC}
	var err error
	if out.AsOf, err = asOf(q); err != nil {
		return out, err
	}
	if out.From, err = q.Moment("from"); err != nil {
		return out, err
	}
	if out.To, err = q.Moment("to"); err != nil {
		return out, err
	}
	if name := q.Get("window"); name != "" {
		var ok bool
		if out.Step, ok = calendar.ParseStep(name); !ok {
			return out, problem.At("window",
				"must be minute, hour, day, week or month; without it the range is one window")
		}
	}
	if fill := q.Get("fill"); fill != "" {
		if fill != "zero" {
			return out, problem.At("fill", "must be zero; without it windows in which nothing counts are left out")
		}
		out.Fill = true
	}
	if name := q.Get("timezone"); name != "" {
		if out.Zone, err = zone(name); err != nil {
			return out, err
		}
	}
	if out.GroupBy, err = dimensions(q.Get("group_by")); err != nil {
		return out, err
	}
	if resource := q.Get("resource"); resource != "" {
		out.Where = append(out.Where, usage.Condition{Dimension: usage.Dimension{Of: usage.ByResource}, Text: resource})
	}
	if len(q.Properties()) > maxConditions {
		return out, problem.At(q.Properties()[maxConditions], "at most %d properties can be filtered by", maxConditions)
	}
	for _, name := range q.Properties() {
		d, _ := usage.ParseDimension(name)
		out.Where = append(out.Where, usage.Condition{Dimension: d, Text: q.Get(name)})
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
func windowPlace(q httpkit.Query) (*windows.Place, error) {
	b, err := q.Place()
	if err != nil || b == nil {
		return nil, err
	}
	seq, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, httpkit.ErrCursor
	}
	b = b[n:]
	from, n := binary.Varint(b)
	if n <= 0 {
		return nil, httpkit.ErrCursor
	}
	b = b[n:]
	given, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return nil, httpkit.ErrCursor
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
