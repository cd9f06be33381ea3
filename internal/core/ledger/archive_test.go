package ledger

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// variants are rows of every shape.
func variants() []Row {
	plain := eventRow()
	derived := eventRow()
	derived.Event.Key = usage.Key{Space: usage.DerivedSpace, Name: "qZk3"}
	typed := eventRow()
	typed.Event.Meter, typed.Event.Type = "", "call"
	typed.Event.Outcomes = []usage.Outcome{{Meter: 2, Value: amount.One, Member: "1u", Overage: true},
		{Meter: 300, Why: usage.PeriodClosed, Value: amount.FromInt(9), Amount: amount.FromInt(-4)}}
	correction := eventRow()
	correction.Event.Corrects, correction.Event.Reason, correction.Event.Quantity = "req_0", "miscounted",
		amount.FromInt(-2)
	correction.Event.Outcomes = []usage.Outcome{{Meter: 1, Why: usage.TargetWas, Value: amount.FromInt(-2),
		Base: amount.FromInt(7), Amount: amount.FromInt(-2)}}
	return []Row{plain, derived, typed, correction}
}

// A row is restored from its canonical encoding alone, to the bit, and from nothing else.
func TestCanonicalEncodingIsDecoded(t *testing.T) {
	for i, want := range variants() {
		b := AppendCanonical(nil, &want, tree.Hash{})
		got, err := DecodeCanonical(b)
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(amount.Amount{})); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
		for n := range b {
			if _, err := DecodeCanonical(b[:n]); err == nil {
				t.Errorf("row %d: %d of %d bytes were taken for a row", i, n, len(b))
			}
		}
		if _, err := DecodeCanonical(append(b, 0)); err == nil {
			t.Errorf("row %d: more than a row was taken for one", i)
		}
	}
	change := Row{Seq: 1, Change: &Change{Event: audit.Of("a", "b", "c")}}
	if _, err := DecodeCanonical(AppendCanonical(nil, &change, tree.Hash{})); err == nil {
		t.Error("a change was taken for a usage row")
	}
}

func FuzzDecodeCanonical(f *testing.F) {
	for _, r := range variants() {
		f.Add(AppendCanonical(nil, &r, tree.Hash{}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeCanonical(b)
		if err != nil {
			return
		}
		again, err := DecodeCanonical(AppendCanonical(nil, &r, tree.Hash{}))
		if err != nil || !bytes.Equal(AppendCanonical(nil, &again, tree.Hash{}),
			AppendCanonical(nil, &r, tree.Hash{})) {
			t.Fatalf("%x is read as %+v, which is written as something else", b, r)
		}
	})
}
