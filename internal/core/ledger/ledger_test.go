package ledger

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

var at = calendar.FromTime(time.Date(2026, 11, 15, 2, 10, 0, 0, time.UTC))

func eventRow() Row {
	return Row{Seq: 7, At: at, By: "acme.k1", Event: &usage.Row{
		Event: usage.Event{ID: "req_1", Meter: "calls", Customer: "cus_1", Resource: "gpt", Properties: `{"a":1}`,
			Quantity: amount.FromInt(3),
			Time:     at - 5, Given: usage.GivenMeter | usage.GivenTime},
		Key:      usage.Key{Space: usage.ClientSpace, Name: "req_1"},
		Outcomes: []usage.Outcome{{Meter: 1, Value: amount.FromInt(3)}},
	}}
}

// keys are of a tree whose secret is 1, 2, 3, ….
func keys(t *testing.T) *tree.Keys {
	t.Helper()
	key := tree.Key{FromSeq: 1}
	for i := range key.Secret {
		key.Secret[i] = byte(i + 1)
	}
	k, err := tree.NewKeys([]tree.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func changeRow() Row {
	e := audit.Event{Type: "meter.created", Source: "api", Actor: "k", EntityType: "meter", EntityID: "calls",
		Payload: "{}"}
	s := entity.State{Kind: "meter", ID: "calls", Version: 1, Critical: true, Data: []byte("{}")}
	return Row{Seq: 8, At: at, Change: &Change{Event: e, State: s}}
}

func entryRow() Row {
	e := account.Entry{
		ID: "E1", Account: "A10", Type: account.Debit, Amount: amount.FromInt(5), Time: at - 7,
		Given:    account.GivenTime,
		Sequence: 3, Counter: "A11", Transfer: "T1", Hold: "H1", Expires: at + 1, Corrects: "E0", Reason: "wrong",
		Metadata: `{"a":1}`,
	}
	return Row{Seq: 9, At: at, By: "acme.k1", Entry: &account.Row{
		Entry: e, Late: true, Version: 4, Balance: amount.FromInt(-5), Held: amount.One,
	}}
}

// The leaves are a published promise: if one changes, every ledger ever written fails its verification.
func TestLeavesAreFrozen(t *testing.T) {
	var h Hasher
	for _, c := range []struct {
		row  Row
		want string
	}{
		{eventRow(), "1f9ff451d275351f4af898a689f8dec4ae6a13ece3fdab6b78d187f780528ab8"},
		{changeRow(), "16796d812f14d046956cd279794090fabd83521b6e7416dbb8ca8dc9439b17e0"},
		{entryRow(), "94ddde7750725c60dd02f171a148a9601fdf5d655b0fddba55803e62b3ae67fa"},
	} {
		leaf := h.Leaf(keys(t), &c.row)
		if got := hex.EncodeToString(leaf[:]); got != c.want {
			t.Errorf("the leaf of the %s is %s, was %s", c.row.Kind(), got, c.want)
		}
	}
}

// Given a change, then what a proof shows of it says nothing of its state, and still depends on every byte of it.
func TestStatesAreBlinded(t *testing.T) {
	var h Hasher
	secret := changeRow()
	secret.Change.State.Data = []byte("the salt is 1234567890")
	k := keys(t)
	shown := AppendCanonical(nil, &secret, h.tree.BlindState(k, secret.Seq, secret.Change.State.Data))
	if bytes.Contains(shown, []byte("1234567890")) {
		t.Errorf("the canonical row shows the state: %q", shown)
	}
	before := h.Leaf(k, &secret)
	secret.Change.State.Data[0] ^= 1
	if h.Leaf(k, &secret) == before {
		t.Error("the leaf does not depend on the state")
	}
}

// Each field of a row, changed alone, must change the encoding.
func TestCanonicalEncodingCoversEveryField(t *testing.T) {
	base := eventRow()
	plain := AppendCanonical(nil, &base, tree.Hash{})
	seen := map[string]string{string(plain): "base"}
	for name, change := range map[string]func(*Row){
		"seq":        func(r *Row) { r.Seq++ },
		"at":         func(r *Row) { r.At++ },
		"by":         func(r *Row) { r.By = "acme.k2" },
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
		b := string(AppendCanonical(nil, &r, tree.Hash{}))
		if other, dup := seen[b]; dup {
			t.Errorf("%s encodes like %s", name, other)
		}
		seen[b] = name
	}
}

// Given rows, then the tree over them is the same however they were committed.
func TestGrowingInSectionsOrAtOnce(t *testing.T) {
	var rows []Row
	for i := range 700 {
		r := eventRow()
		r.Seq = uint64(i + 1)
		rows = append(rows, r)
	}
	var h Hasher
	k := keys(t)
	once, tiles := h.Grow(tree.Tree{}, k, rows, nil)
	var parts tree.Tree
	var later []tree.Tile
	for from := 0; from < len(rows); from += 37 {
		parts, later = h.Grow(parts, k, rows[from:min(len(rows), from+37)], later)
	}
	gaps := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return r.Seq%7 == 0 || r.Seq > 300 && r.Seq < 320
	})
	for i, leaf := range h.Leaves(k, gaps, nil) {
		if leaf != h.Leaf(k, &gaps[i]) {
			t.Errorf("the leaf of row %d is another among rows with gaps", gaps[i].Seq)
		}
	}
	if once != parts || len(tiles) != 2 || !slices.Equal(tiles, later) {
		t.Errorf("%v and %v, tiles %v and %v", once, parts, tiles, later)
	}
}

// Each field of a change, changed alone, must change the encoding.
func TestCanonicalEncodingCoversEveryFieldOfAChange(t *testing.T) {
	var h Hasher
	seen, k := map[tree.Hash]string{}, keys(t)
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
		"critical":    func(c *Change) { c.State.Critical = false },
		"data":        func(c *Change) { c.State.Data = []byte("{ }") },
		"no state":    func(c *Change) { c.State = entity.State{} },
	} {
		r := changeRow()
		change(r.Change)
		leaf := h.Leaf(k, &r)
		if other, dup := seen[leaf]; dup {
			t.Errorf("%s is hashed like %s", name, other)
		}
		seen[leaf] = name
	}
}

// Each field of an entry, changed alone, must change the encoding: none is forgotten, also none that is added later.
func TestCanonicalEncodingCoversEveryFieldOfAnEntry(t *testing.T) {
	base := entryRow()
	seen := map[string]string{string(AppendCanonical(nil, &base, tree.Hash{})): "base"}
	check := func(name string, r Row) {
		b := string(AppendCanonical(nil, &r, tree.Hash{}))
		if other, dup := seen[b]; dup {
			t.Errorf("%s encodes like %s", name, other)
		}
		seen[b] = name
	}
	for _, part := range []func(*Row) reflect.Value{
		func(r *Row) reflect.Value { return reflect.ValueOf(&r.Entry.Entry).Elem() },
		func(r *Row) reflect.Value { return reflect.ValueOf(r.Entry).Elem() },
	} {
		for i := range part(&base).NumField() {
			r := entryRow()
			f, name := part(&r).Field(i), part(&r).Type().Field(i).Name
			switch v := f.Addr().Interface().(type) {
			case *string:
				*v += "x"
			case *bool:
				*v = !*v
			case *amount.Amount:
				*v, _ = v.Add(amount.One)
			case *account.Entry:
				continue
			default:
				if f.CanInt() {
					f.SetInt(f.Int() + 1)
				} else {
					f.SetUint(f.Uint() + 1)
				}
			}
			check(name, r)
		}
	}
	for name, change := range map[string]func(*Row){
		"seq": func(r *Row) { r.Seq++ }, "at": func(r *Row) { r.At++ }, "by": func(r *Row) { r.By = "other" },
	} {
		r := entryRow()
		change(&r)
		check(name, r)
	}
}
