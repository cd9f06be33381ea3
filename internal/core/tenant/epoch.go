package tenant

import (
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// Bounds of what describes an epoch.
const (
	MaxEpochs = 1000
	MaxReason = 500
)

// Epoch is a stretch of a ledger within which no number was given to two rows. The first one begins with the ledger. A
// ledger that was restored from a copy, or whose database lost its last commits, gives numbers again that the world has
// seen: from then on it is in the next epoch, and what leaves the system is named by (epoch, seq).
type Epoch struct {
	FromSeq uint64 // the row that records it
	At      calendar.Micros
	Reason  string
}

// Epoch is the number of the epoch that a row belongs to, counted from 1.
func (t *Tenant) Epoch(seq uint64) int {
	n := len(t.Epochs)
	for n > 0 && t.Epochs[n-1].FromSeq > seq {
		n--
	}
	return n + 1
}

// Check judges what a caller chose.
func (e *Epoch) Check() *problem.Error {
	if e.Reason == "" {
		return problem.At("reason", "required")
	}
	return CheckName("reason", e.Reason, MaxReason)
}

// BeginEpoch begins the next epoch with the row e.FromSeq, which is to record it. The tree has another key from the
// next row on: of the rows that were lost, proofs may have shown nonces. Errors: Invalid.
func (t *Tenant) BeginEpoch(e Epoch, secret [32]byte) error {
	if bad := e.Check(); bad != nil {
		return bad
	}
	if len(t.Epochs) >= MaxEpochs-1 {
		return problem.New(problem.Invalid, "the ledger of %s is in its epoch %d: more than %d are not kept",
			t.ID, len(t.Epochs)+1, MaxEpochs)
	}
	t.Epochs = append(slices.Clone(t.Epochs), e)
	t.TreeKeys = append(slices.Clone(t.TreeKeys), tree.Key{FromSeq: e.FromSeq + 1, Secret: secret})
	return nil
}
