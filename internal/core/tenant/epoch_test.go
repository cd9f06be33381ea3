package tenant

import (
	"strings"
	"testing"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// Every row belongs to one epoch, and the row that records an epoch is its first.
func TestRowsBelongToEpochs(t *testing.T) {
	for _, c := range []struct {
		begun []uint64
		seq   uint64
		want  int
	}{
		{nil, 1, 1}, {nil, 1 << 60, 1},
		{[]uint64{10}, 9, 1}, {[]uint64{10}, 10, 2}, {[]uint64{10}, 11, 2},
		{[]uint64{10, 11}, 10, 2}, {[]uint64{10, 11}, 11, 3}, {[]uint64{10, 20}, 19, 2}, {[]uint64{10, 20}, 0, 1},
	} {
		tn := Tenant{TreeKeys: []tree.Key{{FromSeq: 1}}}
		for _, from := range c.begun {
			if err := tn.BeginEpoch(Epoch{FromSeq: from, Reason: "restored"}, [32]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		if got := tn.Epoch(c.seq); got != c.want {
			t.Errorf("epochs from %v: row %d is in epoch %d, want %d", c.begun, c.seq, got, c.want)
		}
		if _, err := tree.NewKeys(tn.TreeKeys); err != nil {
			t.Errorf("epochs from %v: %v", c.begun, err)
		}
	}
}

// An epoch needs a reason, and there is a bound. A refusal changes nothing.
func TestEpochsHaveBounds(t *testing.T) {
	tn := Tenant{TreeKeys: []tree.Key{{FromSeq: 1}}}
	for _, reason := range []string{"", strings.Repeat("r", MaxReason+1), "a\x00b", "\xff"} {
		if err := tn.BeginEpoch(Epoch{FromSeq: 2, Reason: reason}, [32]byte{}); !problem.Is(err, problem.Invalid) {
			t.Errorf("reason %.10q: %v", reason, err)
		}
	}
	for i := range MaxEpochs - 1 {
		if err := tn.BeginEpoch(Epoch{FromSeq: uint64(i + 2), Reason: "restored"}, [32]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tn.BeginEpoch(Epoch{FromSeq: MaxEpochs + 1, Reason: "restored"},
		[32]byte{}); !problem.Is(err, problem.Invalid) {
		t.Errorf("one epoch too many: %v", err)
	}
	if len(tn.Epochs) != MaxEpochs-1 || len(tn.TreeKeys) != MaxEpochs {
		t.Errorf("%d epochs and %d keys", len(tn.Epochs), len(tn.TreeKeys))
	}
}
