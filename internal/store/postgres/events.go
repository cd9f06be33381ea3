package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/properties"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// eventArrays are usage rows as the parameters of an insert. Most rows are plain and need only the first ones.
type eventArrays struct {
	key, seq, time, quantity, given, meter, customer, resource, properties, by array
	prev                                                                       array
	adjusted, eventType, clientID, corrects, reason, outcomes                  array
	buf                                                                        []byte
}

func (a *eventArrays) reset() {
	for _, x := range [...]*array{&a.key, &a.meter, &a.customer, &a.resource, &a.properties, &a.by,
		&a.eventType, &a.clientID, &a.corrects, &a.reason, &a.outcomes} {
		x.reset(oidText)
	}
	a.seq.reset(oidInt8)
	a.prev.reset(oidInt8)
	a.time.reset(oidTimestamptz)
	a.quantity.reset(oidNumeric)
	a.given.reset(oidInt2)
	a.adjusted.reset(oidBool)
}

func (a *eventArrays) add(row *ledger.Row) {
	r := row.Event
	a.key.length(1 + len(r.Key.Name))
	a.key.buf = append(append(a.key.buf, byte(r.Key.Space)), r.Key.Name...)
	a.seq.int8(int64(row.Seq))
	a.time.time(r.Time)
	a.quantity.amount(r.Quantity)
	a.given.int2(int16(r.Given))
	a.meter.text(r.Meter)
	a.customer.text(r.Customer)
	a.resource.optional(r.Resource)
	a.properties.optional(r.Properties)
	a.by.optional(row.By)
}

// addRest writes what only rows that are not plain have. links are the rows before it, in the order of its outcomes.
func (a *eventArrays) addRest(r *usage.Row, links []uint64) {
	a.adjusted.bool(r.Status() == usage.Adjusted)
	a.eventType.optional(r.Type)
	if r.Key.Space == usage.DerivedSpace {
		a.clientID.optional(r.ID)
	} else {
		a.clientID.null()
	}
	a.corrects.optional(r.Corrects)
	a.reason.optional(r.Reason)
	a.buf = appendOutcomes(a.buf[:0], r.Outcomes, links)
	a.outcomes.bytes(a.buf)
}

// isPlain reports whether a row says no more than the columns of a plain one.
func isPlain(r *usage.Row) bool {
	if len(r.Outcomes) != 1 || r.Meter == "" || r.Type != "" || r.Corrects != "" ||
		r.Key.Space == usage.DerivedSpace && r.ID != "" {
		return false
	}
	o := &r.Outcomes[0]
	return o.Why == usage.OnTime && !o.Overage && o.Member == "" && o.Value == r.Quantity
}

func (a *eventArrays) plain(tenantID string, at calendar.Micros) [][]byte {
	return append(a.common(tenantID, at), a.prev.param())
}

// common are the parameters that all rows have.
func (a *eventArrays) common(tenantID string, at calendar.Micros) [][]byte {
	return [][]byte{[]byte(tenantID), timeParam(at), a.key.param(), a.seq.param(), a.time.param(), a.quantity.param(),
		a.given.param(), a.meter.param(), a.customer.param(), a.resource.param(), a.properties.param(), a.by.param()}
}

func (a *eventArrays) full(tenantID string, at calendar.Micros) [][]byte {
	return append(a.common(tenantID, at), a.adjusted.param(), a.eventType.param(), a.clientID.param(),
		a.corrects.param(), a.reason.param(), a.outcomes.param())
}

// slugs finds meters by slug; a catalog does.
type slugs interface {
	numberOf(slug string) (uint32, bool)
}

// readEvent reads the columns of eventColumns into memory of its own.
func readEvent(in *reader, meters slugs) (ledger.Row, error) {
	e := &usage.Row{}
	key := in.text()
	if key == "" {
		return ledger.Row{}, fmt.Errorf("an event has no key: %w", in.err)
	}
	e.Key = usage.Key{Space: usage.Space(key[0]), Name: key[1:]}
	out := ledger.Row{Event: e, Seq: uint64(in.int8()), At: in.time()}
	e.Time, e.Quantity, e.Given = in.time(), in.amount(), usage.Given(in.int2())
	e.Meter, e.Customer, e.Type, e.Resource = in.text(), in.text(), in.text(), in.text()
	if e.ID = in.text(); e.Key.Space == usage.ClientSpace {
		e.ID = e.Key.Name
	}
	e.Properties, e.Corrects, e.Reason = in.text(), in.text(), in.text()
	out.By = in.text()
	plain := in.isNull()
	outcomes := in.next(-1)
	if in.err != nil {
		return out, in.err
	}
	if plain {
		number, ok := meters.numberOf(e.Meter)
		if !ok {
			return out, fmt.Errorf("row %d names meter %q, which does not exist", out.Seq, e.Meter)
		}
		e.Outcomes = []usage.Outcome{{Meter: number, Value: e.Quantity}}
		return out, nil
	}
	var err error
	if e.Outcomes, err = readOutcomes(outcomes); err != nil {
		return out, fmt.Errorf("read the outcomes of row %d: %w", out.Seq, err)
	}
	return out, nil
}

// outcomeJSON is an outcome as the table keeps it, without its link to the row before. Amounts are texts: JSON's
// numbers are floats to many readers.
type outcomeJSON struct {
	Meter   uint32 `json:"meter"`
	Value   string `json:"value"`
	Base    string `json:"base"`
	Member  string `json:"member"`
	Why     string `json:"why"`
	Overage bool   `json:"overage"`
	Amount  string `json:"amount"`
}

func appendOutcomes(b []byte, outcomes []usage.Outcome, links []uint64) []byte {
	b = append(b, '[')
	for i := range outcomes {
		o := &outcomes[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, `{"meter":`...), uint64(o.Meter), 10)
		b = appendAmount(b, `,"value":"`, o.Value)
		if !o.Base.IsZero() {
			b = appendAmount(b, `,"base":"`, o.Base)
		}
		if o.Member != "" {
			b = properties.AppendString(append(b, `,"member":`...), o.Member)
		}
		if o.Why != usage.OnTime {
			b = append(append(append(b, `,"why":"`...), o.Why.String()...), '"')
			b = appendAmount(b, `,"amount":"`, o.Amount)
		}
		if o.Overage {
			b = append(b, `,"overage":true`...)
		}
		if links[i] != 0 {
			b = strconv.AppendUint(append(b, `,"prev":`...), links[i], 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendAmount(b []byte, name string, v amount.Amount) []byte {
	return append(v.AppendText(append(b, name...)), '"')
}

func readOutcomes(text []byte) ([]usage.Outcome, error) {
	var in []outcomeJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	out := make([]usage.Outcome, len(in))
	for i, o := range in {
		out[i] = usage.Outcome{Meter: o.Meter, Member: o.Member, Overage: o.Overage}
		for _, f := range [...]struct {
			text string
			to   *amount.Amount
		}{{o.Value, &out[i].Value}, {o.Base, &out[i].Base}, {o.Amount, &out[i].Amount}} {
			if f.text == "" {
				continue
			}
			var err error
			if *f.to, err = amount.Parse(f.text); err != nil {
				return nil, err
			}
		}
		for out[i].Why = usage.OnTime; o.Why != "" && out[i].Why.String() != o.Why; out[i].Why++ {
			if out[i].Why == usage.TargetWas {
				return nil, fmt.Errorf("%q is no reason of an adjusted outcome", o.Why)
			}
		}
	}
	return out, nil
}
