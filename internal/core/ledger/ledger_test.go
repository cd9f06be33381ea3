package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
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
	rows := []Row{eventRow(), {Seq: 8, At: at, Change: &Change{Event: audit.Of("meter", "created", "calls"), State: entity.State{Kind: "meter", ID: "calls", Version: 1, Critical: true, Data: []byte("{}")}}}}
	sum := h.Next([32]byte{}, rows)
	const want = "8efa9fa90b5b52415e69c99ffaa5dbfd51617f65b6b5f43af6809ac9ab5a3813"
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

// Each field of a change, changed alone, must change the encoding.
func TestCanonicalEncodingCoversEveryFieldOfAChange(t *testing.T) {
	newRow := func() Row {
		e := audit.Event{Type: "a.b", Source: "api", Actor: "k", EntityType: "a", EntityID: "1", Payload: "{}"}
		s := entity.State{Kind: "a", ID: "1", Version: 1, Data: []byte("{}")}
		return Row{Seq: 8, At: at, Change: &Change{Event: e, State: s}}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*Change){
		"nothing":     func(*Change) {},
		"type":        func(c *Change) { c.Type = "" },
		"source":      func(c *Change) { c.Source = "" },
		"actor":       func(c *Change) { c.Actor = "" },
		"entity type": func(c *Change) { c.EntityType = "" },
		"entity id":   func(c *Change) { c.EntityID = "" },
		"payload":     func(c *Change) { c.Payload = "" },
		"kind":        func(c *Change) { c.State.Kind = "b" },
		"id":          func(c *Change) { c.State.ID = "2" },
		"version":     func(c *Change) { c.State.Version = 2 },
		"critical":    func(c *Change) { c.State.Critical = true },
		"data":        func(c *Change) { c.State.Data = []byte("{ }") },
		"no state":    func(c *Change) { c.State = entity.State{} },
	} {
		r := newRow()
		change(r.Change)
		b := string(AppendCanonical(nil, &r))
		if other, dup := seen[b]; dup {
			t.Errorf("%s encodes like %s", name, other)
		}
		seen[b] = name
	}
}
