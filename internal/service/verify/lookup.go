package verify

import (
	"bytes"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tree"
)

// Bounds of how many rows of a tenant are looked up by their key. Up to maxLookups every row is; beyond, every k-th. A
// store may read a whole section to return one row of it, so sections of thousands of rows are looked into less often:
// maxLookupWork is the number of rows read for it, some seconds. Corrected facts are always looked up. A store that can
// check its own index of keys at a better price does so beside this.
const (
	maxLookups    = 1_000_000
	maxLookupWork = 20_000_000
)

// lookups finds rows again by their keys.
type lookups struct {
	b          *recount
	every      uint64
	events     uint64
	want, have []byte
}

func newLookups(b *recount) *lookups {
	return &lookups{b: b, every: max(1, (b.head.Seq+maxLookups-1)/maxLookups, (b.work+maxLookupWork-1)/maxLookupWork)}
}

// maybe looks a row up if it is its turn.
func (l *lookups) maybe(r *ledger.Row) error {
	by := l.b.correctedBy[r.Event.Key]
	l.events++
	if len(by) == 0 && l.events%l.every != 0 {
		return nil
	}
	l.b.report.Lookups++
	what := "event " + r.Event.Key.ID()
	found, corrections, err := l.b.v.Event(r.Event.Key)
	if problem.Is(err, problem.NotFound) {
		l.b.differs(what, fmt.Sprintf("row %d", r.Seq), "none")
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up %s: %w", what, err)
	}
	l.want, l.have = ledger.AppendCanonical(l.want[:0], r, tree.Hash{}),
		ledger.AppendCanonical(l.have[:0], &found, tree.Hash{})
	if !bytes.Equal(l.want, l.have) {
		l.b.differs(what, fmt.Sprintf("row %d as it stands", r.Seq),
			fmt.Sprintf("row %d with other content", found.Seq))
	}
	seqs := make([]uint64, len(corrections))
	for i := range corrections {
		seqs[i] = corrections[i].Seq
	}
	if fmt.Sprint(seqs) != fmt.Sprint(by) {
		l.b.differs("corrections of "+what, by, seqs)
	}
	return nil
}
