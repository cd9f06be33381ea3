package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
)

var at = calendar.FromTime(time.Date(2026, 11, 15, 2, 10, 0, 0, time.UTC))

func eventRow() Row {
	return Row{Seq: 7, At: at, Event: &usage.Row{
		Event: usage.Event{ID: "req_1", Meter: "calls", Customer: "cus_1", Resource: "gpt", Properties: `{"a":1}`, Quantity: amount.FromInt(3),
			Time: at - 5, Given: usage.GivenMeter | usage.GivenTime},
		Key:      usage.Key{Space: usage.ClientSpace, Name: "req_1"},
		Outcomes: []usage.Outcome{{Meter: 1, Value: amount.FromInt(3)}},
	}}
}

// The chain is a published promise: if this hash changes, every ledger ever written fails its verification.
func TestCanonicalEncodingIsFrozen(t *testing.T) {
	var h Hasher
	rows := []Row{eventRow(), {Seq: 8, At: at, Change: &Change{Event: audit.Of("meter", "created", "calls"), State: []byte("{}")}}}
	sum := h.Next([32]byte{}, rows)
	const want = "676cecf77bf22d2a4e9589d3da85be2a9ec632532fce60d709b5597d4ea8ddf4"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("chain is %s, was %s", got, want)
	}
}

// Each field of a row, changed alone, must change the encoding.
func TestCanonicalEncodingCoversEveryField(t *testing.T) {
	base := eventRow()
	plain := AppendCanonical(nil, &base)
	seen := map[string]string{string(plain): "base"}
	for name, change := range map[string]func(*Row){
		"seq":        func(r *Row) { r.Seq++ },
		"at":         func(r *Row) { r.At++ },
		"space":      func(r *Row) { r.Event.Key.Space = usage.DerivedSpace },
		"key":        func(r *Row) { r.Event.Key.Name = "req_2" },
		"given":      func(r *Row) { r.Event.Given |= usage.GivenCustomer },
		"meter":      func(r *Row) { r.Event.Meter = "call" },
		"type":       func(r *Row) { r.Event.Type = "t" },
		"customer":   func(r *Row) { r.Event.Customer = "cus_2" },
		"resource":   func(r *Row) { r.Event.Resource = "" },
		"time":       func(r *Row) { r.Event.Time++ },
		"quantity":   func(r *Row) { r.Event.Quantity = amount.FromInt(4) },
		"properties": func(r *Row) { r.Event.Properties = "" },
		"corrects":   func(r *Row) { r.Event.Corrects = "x" },
		"outcomes":   func(r *Row) { r.Event.Outcomes = nil },
		"o.meter":    func(r *Row) { r.Event.Outcomes[0].Meter = 2 },
		"o.value":    func(r *Row) { r.Event.Outcomes[0].Value = amount.One },
		"o.member":   func(r *Row) { r.Event.Outcomes[0].Member = "m" },
		"o.why":      func(r *Row) { r.Event.Outcomes[0].Why = usage.TooLate },
		"o.overage":  func(r *Row) { r.Event.Outcomes[0].Overage = true },
		"o.amount":   func(r *Row) { r.Event.Outcomes[0].Why, r.Event.Outcomes[0].Amount = usage.TooLate, amount.One },
		"reason":     func(r *Row) { r.Event.Corrects, r.Event.Reason = "x", "because" },
		"o.base":     func(r *Row) { r.Event.Corrects, r.Event.Outcomes[0].Base = "x", amount.One },
	} {
		r := eventRow()
		change(&r)
		b := string(AppendCanonical(nil, &r))
		if other, dup := seen[b]; dup {
			t.Errorf("%s encodes like %s", name, other)
		}
		seen[b] = name
	}
}

func TestLongSectionHashesLikeItsConcatenation(t *testing.T) {
	var rows []Row
	for i := range 3000 {
		r := eventRow()
		r.Seq = uint64(i + 1)
		rows = append(rows, r)
	}
	var h Hasher
	whole := h.Next([32]byte{1}, rows)
	var all []byte
	for i := range rows {
		all = AppendCanonical(all, &rows[i])
	}
	if want := sha256.Sum256(append(bytes.Clone([]byte{1, 31: 0}), all...)); whole != want {
		t.Errorf("got %x, want %x", whole, want)
	}
}

func TestStatesSurviveEncoding(t *testing.T) {
	row := Row{Seq: 9, At: at}
	for name, s := range map[string]State{
		"tenant": {Tenant: &tenant.Tenant{ID: "acme", Name: "Acme", AllowedOrigins: []string{"https://a.example"}, Salt: [32]byte{1, 2}, Closed: true, CreatedAt: at, ClosedAt: at + 1}},
		"key": {Key: &tenant.APIKey{ID: "acme.1", Name: "k", Scopes: tenant.Ingest | tenant.Read, Hash: [32]byte{9}, CreatedAt: at, ExpiresAt: at + 2, RevokedAt: at + 1,
			RateLimit: tenant.RateLimit{RequestsPerSecond: 1, EventsPerSecond: 2, BytesPerSecond: 3}}},
		"meter": {Meter: &meter.Meter{Number: 3, Slug: "m", Name: "M", Aggregation: meter.Unique, EventType: "t", ValueProperty: "v", UniqueProperty: "u", Lateness: time.Hour,
			Late: meter.Reject, KeyPolicy: meter.DerivedKey, KeyFields: []string{"time"}, KeyBucket: time.Second, Future: time.Minute, Rounding: meter.HalfEven, CreatedAt: at}},
		"adjustment": {Adjustment: &usage.Adjustment{ID: "adj_9", Seq: 9, At: at, Meter: 1, Customer: "c", Month: 24322, Amount: amount.One, Reason: "r", Actor: "a", Reverts: "adj_4", Replay: "late=reject"}},
		"close":      {Close: &usage.Period{Month: 24322, Closed: true, ClosedAt: at, Seq: 9, Actor: "a"}},
	} {
		row.Change = &Change{State: s.Encode()}
		back, err := DecodeState(&row)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, back, cmp.Comparer(func(a, b amount.Amount) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestUnknownStateVersionIsNamed(t *testing.T) {
	row := Row{Seq: 9, Change: &Change{Event: audit.Of("meter", "created", "x"), State: []byte(`{"v":2,"meter":{}}`)}}
	if _, err := DecodeState(&row); err == nil || !bytes.Contains([]byte(err.Error()), []byte("version 2")) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{`{`, `{"v":1}`, `{"v":1,"tenant":{"salt":"AA=="}}`, `{"v":1,"adjustment":{"amount":"x"}}`} {
		row.Change.State = []byte(bad)
		if _, err := DecodeState(&row); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
