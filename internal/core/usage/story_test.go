package usage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/naive"
)

const acme = "acme"

// story is one ledger and the clock it sees.
type story struct {
	store   *naive.Store
	clock   time.Time
	derived map[string]string
}

func (s *story) setClock(d *datadriven.TestData) error {
	for _, a := range d.CmdArgs {
		if a.Key != "now" {
			continue
		}
		at, err := parseTime(a.Vals[0])
		if err != nil {
			return err
		}
		s.clock = at.Time()
	}
	return nil
}

// start makes a ledger whose first row is the tenant's; the meters follow.
func (s *story) start(meters string) (string, error) {
	s.store = naive.New(naive.Options{Now: func() time.Time { return s.clock }})
	s.derived = map[string]string{}
	err := s.append("tenant", "created", acme, tenant.Kind.State(&tenant.Tenant{
		ID: acme, Salt: [32]byte{1}, TreeKeys: []tree.Key{{FromSeq: 1}},
	}))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(meters) {
		_, args, err := datadriven.ParseLine("meter " + line)
		if err != nil {
			return "", err
		}
		if out, err := s.addMeter(args); err != nil || out != "ok" {
			return out, err
		}
	}
	return "ok", nil
}

// copyMeters makes another ledger with the same meters and clock.
func (s *story) copyMeters() (*story, error) {
	other := &story{clock: s.clock}
	if _, err := other.start(""); err != nil {
		return nil, err
	}
	err := s.view(func(v store.View) error {
		ms, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
		if err != nil {
			return err
		}
		for _, m := range ms {
			if err := other.append("meter", "created", m.Slug, meter.Kind.State(&m.Meter)); err != nil {
				return err
			}
		}
		return nil
	})
	return other, err
}

func (s *story) append(what, action, id string, state entity.State) error {
	return s.store.Update(context.Background(), acme, func(tx store.Tx) error {
		_, err := tx.Append(ledger.Change{Event: audit.Of(what, action, id), State: state})
		return err
	})
}

func (s *story) view(fn func(store.View) error) error {
	return s.store.View(context.Background(), acme, fn)
}

func (s *story) record(events []usage.Event, atomic bool) ([]usage.Verdict, error) {
	return s.store.Record(context.Background(), store.Batch{Tenant: acme, Events: slices.Clone(events), Atomic: atomic})
}

func (s *story) eachRow(fn func(store.View, *ledger.Row) error) error {
	return s.view(func(v store.View) (err error) {
		_, _, scan := v.Rows(0, store.RowHint{}, func(r *ledger.Row) bool {
			err = fn(v, r)
			return err == nil
		})
		if err == nil {
			err = scan
		}
		return err
	})
}

// keys lists the rows of events by what they are: a set, whatever order they came in.
func (s *story) keys(v store.View) []string {
	var out []string
	_, _, err := v.Rows(0, store.RowHint{}, func(r *ledger.Row) bool {
		if r.Event != nil {
			out = append(out, r.Event.Key.ID())
		}
		return true
	})
	if err != nil {
		return []string{err.Error()}
	}
	slices.Sort(out)
	return out
}

func (s *story) closed(v store.View, m calendar.Month) bool {
	p, err := store.Period(v, m)
	return err == nil && p.Closed
}

func (s *story) slug(v store.View, number uint32) (string, error) {
	ms, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
	for _, m := range ms {
		if m.Number == number {
			return m.Slug, nil
		}
	}
	return "", fmt.Errorf("no meter %d: %w", number, err)
}

func (s *story) addMeter(args []datadriven.CmdArg) (string, error) {
	m := meter.Meter{Slug: args[0].Key, Lateness: meter.DefaultLateness, Future: meter.DefaultFuture}
	aggregation, p := meter.ParseAggregation(args[1].Key)
	if p != nil {
		return "", p
	}
	m.Aggregation = aggregation
	if err := setOptions(&m, args[2:]); err != nil {
		return "", err
	}
	if p := m.Check(); p != nil {
		return refusal(p), nil
	}
	err := s.view(func(v store.View) error {
		ms, err := store.Meters(v, store.Page{Limit: tenant.MaxMeters})
		m.Number = uint32(len(ms) + 1)
		return err
	})
	if err != nil {
		return "", err
	}
	return "ok", s.append("meter", "created", m.Slug, meter.Kind.State(&m))
}

func (s *story) patchMeter(args []datadriven.CmdArg) (string, error) {
	var have store.Meter
	err := s.view(func(v store.View) (err error) {
		have, err = store.GetMeter(v, args[0].Key)
		return err
	})
	if err != nil {
		return "", err
	}
	next := have.Meter
	if err := setOptions(&next, args[1:]); err != nil {
		return "", err
	}
	next.Follow(&have.Meter)
	if p := have.CheckChange(&next, have.Used); p != nil {
		return refusal(p), nil
	}
	return "ok", s.append("meter", "updated", next.Slug, meter.Kind.State(&next))
}

func setOptions(m *meter.Meter, args []datadriven.CmdArg) error {
	for _, a := range args {
		if len(a.Vals) == 0 {
			return fmt.Errorf("%s has no value", a.Key)
		}
		v := a.Vals[0]
		var err error
		var p *problem.Error
		switch a.Key {
		case "name":
			m.Name = v
		case "aggregation":
			m.Aggregation, p = meter.ParseAggregation(v)
		case "lateness":
			m.Lateness, err = time.ParseDuration(v)
		case "future":
			m.Future, err = time.ParseDuration(v)
		case "key_bucket":
			m.KeyBucket, err = time.ParseDuration(v)
		case "late":
			m.Late, p = meter.ParseLate(v)
		case "key_policy":
			m.KeyPolicy, p = meter.ParseKeyPolicy(v)
		case "rounding":
			m.Rounding, p = meter.ParseRounding(v)
		case "key_fields":
			m.KeyFields = a.Vals
		case "event_type":
			m.EventType = v
		case "value_property":
			m.ValueProperty = v
		case "unique_property":
			m.UniqueProperty = v
		case "missing_value":
			m.MissingValue, p = meter.ParseMissingValue(v)
		case "filter":
			m.Filter, err = parseFilter(a.Vals)
		default:
			err = fmt.Errorf("no such option")
		}
		if p != nil {
			return p
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Key, err)
		}
	}
	return nil
}

// parseFilter reads values written name:JSON scalar.
func parseFilter(texts []string) (meter.Filter, error) {
	out := meter.Filter{}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, ":")
		m, err := parseProperty(name, value)
		if err != nil {
			return nil, err
		}
		out[name] = append(out[name], meter.Scalar(m.Value))
	}
	return out, nil
}

func (s *story) adjust(d *datadriven.TestData) (string, error) {
	a := usage.Adjustment{Actor: "ann"}
	err := s.view(func(v store.View) error {
		id, _, err := counterID(v, d.CmdArgs)
		a.Meter, a.Customer, a.Month = id.Meter, id.Customer, id.Month
		a.ID = usage.ManualID(v.Head().Seq + 1)
		return err
	})
	if err != nil {
		return "", err
	}
	if a.Amount, err = amount.Parse(argument(d, "amount")); err != nil {
		return "", err
	}
	a.Reason = argument(d, "reason")
	if p := a.Check(); p != nil {
		return refusal(p), nil
	}
	return "ok", s.append("adjustment", "created", "", usage.AdjustmentKind.State(&a))
}

// argument is the value of a command's argument, or "" when it has none.
func argument(d *datadriven.TestData, key string) string {
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return ""
}

func (s *story) close(month string) (string, error) {
	m, err := calendar.ParseMonth(month)
	if err != nil {
		return "", err
	}
	return "ok", s.append("period", "closed", month, usage.PeriodKind.State(&usage.Period{Month: m, Closed: true}))
}

func parseTime(s string) (calendar.Micros, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return calendar.FromTime(t), nil
		}
	}
	return 0, fmt.Errorf("%q is neither RFC 3339 nor a date", s)
}

func parseEvents(input string) ([]usage.Event, error) {
	var out []usage.Event
	for line := range strings.Lines(input) {
		e, err := parseEvent(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		out = append(out, e)
	}
	return out, nil
}

// parseEvent does what a decoder does: canonical decimals, canonical properties, and a note of what was stated.
func parseEvent(fields []string) (e usage.Event, err error) {
	e.Quantity = amount.One
	var members []properties.Member
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		if property, ok := strings.CutPrefix(name, "p."); ok {
			m, err := parseProperty(property, value)
			if err != nil {
				return e, err
			}
			members = append(members, m)
			e.Given |= usage.GivenProperties
			continue
		}
		if err := setField(&e, name, value); err != nil {
			return e, err
		}
	}
	e.Properties = string(properties.Append(nil, members))
	return e, nil
}

func setField(e *usage.Event, name, value string) (err error) {
	switch name {
	case "id":
		e.ID = value
	case "corrects":
		e.Corrects = value
	case "reason":
		e.Reason = value
	case "meter":
		e.Meter, e.Given = value, e.Given|usage.GivenMeter
	case "type":
		e.Type, e.Given = value, e.Given|usage.GivenType
	case "customer":
		e.Customer, e.Given = value, e.Given|usage.GivenCustomer
	case "resource":
		e.Resource, e.Given = value, e.Given|usage.GivenResource
	case "time":
		e.Given |= usage.GivenTime
		e.Time, err = parseTime(value)
	case "quantity":
		e.Given |= usage.GivenQuantity
		if e.Quantity, err = amount.Parse(value); errors.Is(err, amount.ErrPrecision) {
			e.Quantity, e.Unrounded, err = amount.Zero, value, nil
		}
	default:
		err = fmt.Errorf("no such field")
	}
	return err
}

func parseProperty(name, value string) (properties.Member, error) {
	m := properties.Member{Name: name}
	switch {
	case strings.HasPrefix(value, `"`):
		m.Value = properties.Value{Kind: properties.String, Text: strings.Trim(value, `"`)}
	case value == "true" || value == "false":
		m.Value = properties.Value{Kind: properties.Bool, Text: value}
	case value == "null":
		m.Value = properties.Value{Kind: properties.Null, Text: value}
	default:
		n, err := properties.AppendNumber(nil, value)
		if err != nil {
			return m, err
		}
		m.Value = properties.Value{Kind: properties.Number, Text: string(n)}
	}
	return m, nil
}
