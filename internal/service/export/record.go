package export

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// What a column holds, where the formats differ in how they show it: a Parquet column has the type itself, the others
// its text.
type (
	moment   int64          // microseconds
	decimal  amount.Decimal // DECIMAL(38,12)
	document string         // JSON
)

func (m moment) text() string { return calendar.Micros(m).String() }

func (d decimal) text() string {
	a, _ := amount.FromDecimal((*amount.Decimal)(&d)) // it was made of an amount
	return a.String()
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *moment) UnmarshalJSON(b []byte) error {
	var t time.Time
	err := json.Unmarshal(b, &t)
	*m = moment(calendar.FromTime(t))
	return err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *decimal) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	a, err := amount.Parse(text)
	*d = decimal(a.Decimal())
	return err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *document) UnmarshalJSON(b []byte) error {
	*d = document(b)
	return nil
}

func (m moment) MarshalJSON() ([]byte, error)   { return strconv.AppendQuote(nil, m.text()), nil }
func (d decimal) MarshalJSON() ([]byte, error)  { return strconv.AppendQuote(nil, d.text()), nil }
func (d document) MarshalJSON() ([]byte, error) { return []byte(d), nil }

// eventRecord is a usage event as it is exported: the names are those of the API.
type eventRecord struct {
	Tenant     string   `json:"tenant" parquet:"tenant,dict"`
	Seq        int64    `json:"seq" parquet:"seq,delta"`
	ID         string   `json:"id" parquet:"id"`
	Status     string   `json:"status" parquet:"status,dict"`
	Overage    bool     `json:"overage" parquet:"overage"`
	Meter      string   `json:"meter,omitempty" parquet:"meter,optional,dict"`
	Type       string   `json:"type,omitempty" parquet:"type,optional,dict"`
	Customer   string   `json:"customer" parquet:"customer,dict"`
	Resource   string   `json:"resource,omitempty" parquet:"resource,optional,dict"`
	Time       moment   `json:"time" parquet:"time,timestamp(microsecond)"`
	Quantity   decimal  `json:"quantity" parquet:"quantity,decimal(12:38)"`
	Properties document `json:"properties" parquet:"properties,json"`
	ClientID   string   `json:"client_id,omitempty" parquet:"client_id,optional"`
	Corrects   string   `json:"corrects,omitempty" parquet:"corrects,optional"`
	Reason     string   `json:"reason,omitempty" parquet:"reason,optional"`
	ReceivedAt moment   `json:"received_at" parquet:"received_at,timestamp(microsecond)"`
	By         string   `json:"by,omitempty" parquet:"by,optional,dict"`
	Outcomes   document `json:"outcomes" parquet:"outcomes,json"`
}

// entryRecord is an account entry as it is exported.
type entryRecord struct {
	Tenant     string   `json:"tenant" parquet:"tenant,dict"`
	Seq        int64    `json:"seq" parquet:"seq,delta"`
	ID         string   `json:"id" parquet:"id"`
	Account    string   `json:"account" parquet:"account,dict"`
	Type       string   `json:"type" parquet:"type,dict"`
	Amount     decimal  `json:"amount" parquet:"amount,decimal(12:38)"`
	Time       moment   `json:"time" parquet:"time,timestamp(microsecond)"`
	Sequence   *int64   `json:"sequence,omitempty" parquet:"sequence,optional"`
	Counter    string   `json:"counter_account,omitempty" parquet:"counter_account,optional,dict"`
	Transfer   string   `json:"transfer,omitempty" parquet:"transfer,optional"`
	Hold       string   `json:"hold,omitempty" parquet:"hold,optional"`
	Expires    *moment  `json:"expires_at,omitempty" parquet:"expires_at,optional,timestamp(microsecond)"`
	Corrects   string   `json:"corrects,omitempty" parquet:"corrects,optional"`
	Reason     string   `json:"reason,omitempty" parquet:"reason,optional"`
	Metadata   document `json:"metadata" parquet:"metadata,json"`
	System     bool     `json:"system" parquet:"system"`
	Late       bool     `json:"late" parquet:"late"`
	Gap        bool     `json:"gap" parquet:"gap"`
	Version    int64    `json:"version" parquet:"version"`
	Balance    decimal  `json:"balance" parquet:"balance,decimal(12:38)"`
	Held       decimal  `json:"held" parquet:"held,decimal(12:38)"`
	ReceivedAt moment   `json:"received_at" parquet:"received_at,timestamp(microsecond)"`
	By         string   `json:"by,omitempty" parquet:"by,optional,dict"`
}

// changeRecord is any other row. The state that the ledger keeps with it stays there: it holds salts and hashes.
type changeRecord struct {
	Tenant     string   `json:"tenant" parquet:"tenant,dict"`
	Seq        int64    `json:"seq" parquet:"seq,delta"`
	CreatedAt  moment   `json:"created_at" parquet:"created_at,timestamp(microsecond)"`
	EventType  string   `json:"event_type" parquet:"event_type,dict"`
	Source     string   `json:"source" parquet:"source,dict"`
	Actor      string   `json:"actor" parquet:"actor,dict"`
	EntityType string   `json:"entity_type" parquet:"entity_type,dict"`
	EntityID   string   `json:"entity_id" parquet:"entity_id"`
	Payload    document `json:"payload" parquet:"payload,json"`
}

// outcomeJSON is what an event did to one meter.
type outcomeJSON struct {
	Meter      string         `json:"meter"`
	Value      string         `json:"value"`
	Status     string         `json:"status"`
	Overage    bool           `json:"overage,omitempty"`
	Member     string         `json:"member,omitempty"`
	Adjustment *adjustedByRow `json:"adjustment,omitempty"`
}

type adjustedByRow struct {
	ID     string `json:"id"`
	Amount string `json:"amount"`
	Reason string `json:"reason"`
}

const noDocument = "{}"

func recordOfEvent(l *Ledger, row *ledger.Row) (eventRecord, error) {
	r := row.Event
	out := eventRecord{
		Tenant: l.Tenant, Seq: int64(row.Seq), ID: r.Key.ID(), Status: r.Status().String(), Overage: r.Over(),
		Meter: r.Meter, Type: r.Type,
		Customer: r.Customer, Resource: r.Resource, Time: moment(r.Time), Quantity: decimal(r.Quantity.Decimal()),
		Properties: noDocument,
		Corrects:   r.Corrects, Reason: r.Reason, ReceivedAt: moment(row.At), By: row.By,
	}
	if r.Properties != "" {
		out.Properties = document(r.Properties)
	}
	if r.Key.Space == usage.DerivedSpace {
		out.ClientID = r.ID
	}
	outcomes := make([]outcomeJSON, len(r.Outcomes))
	for i := range r.Outcomes {
		outcomes[i] = outcomeOf(l, row, &r.Outcomes[i])
	}
	text, err := json.Marshal(outcomes)
	out.Outcomes = document(text)
	return out, err
}

func outcomeOf(l *Ledger, row *ledger.Row, o *usage.Outcome) outcomeJSON {
	out := outcomeJSON{Meter: l.meters[o.Meter], Value: o.Value.String(), Status: usage.Accepted.String(),
		Overage: o.Overage, Member: o.Member}
	if a, late := usage.LateAdjustment(row.Event, o, row.Seq, row.At); late {
		out.Status = usage.Adjusted.String()
		out.Adjustment = &adjustedByRow{a.ID, a.Amount.String(), a.Reason}
	} else if o.Overage {
		out.Status = usage.Overage.String()
	}
	return out
}

func recordOfEntry(l *Ledger, row *ledger.Row) (entryRecord, error) {
	r := row.Entry
	out := entryRecord{
		Tenant: l.Tenant, Seq: int64(row.Seq), ID: r.ID, Account: r.Account, Type: r.Type.String(),
		Amount: decimal(r.Amount.Decimal()), Time: moment(r.Time), Counter: r.Counter,
		Transfer: r.Transfer, Hold: r.Hold,
		Corrects: r.Corrects, Reason: r.Reason, Metadata: noDocument, System: r.System, Late: r.Late, Gap: r.Gap,
		Version: int64(r.Version), Balance: decimal(r.Balance.Decimal()), Held: decimal(r.Held.Decimal()),
		ReceivedAt: moment(row.At), By: row.By,
	}
	if r.Metadata != "" {
		out.Metadata = document(r.Metadata)
	}
	if r.Given&account.GivenSequence != 0 {
		n := int64(r.Sequence)
		out.Sequence = &n
	}
	if r.Expires != 0 {
		at := moment(r.Expires)
		out.Expires = &at
	}
	return out, nil
}

func recordOfChange(l *Ledger, row *ledger.Row) (changeRecord, error) {
	c := row.Change
	out := changeRecord{
		Tenant: l.Tenant, Seq: int64(row.Seq), CreatedAt: moment(row.At), EventType: c.Type, Source: c.Source,
		Actor:      c.Actor,
		EntityType: c.EntityType, EntityID: c.EntityID, Payload: noDocument,
	}
	if c.Payload != "" {
		out.Payload = document(c.Payload)
	}
	return out, nil
}
