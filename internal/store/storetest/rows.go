package storetest

import (
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// everything is the hint of a scan that wants all rows.
var everything = store.RowHint{Changes: true, Entries: true, Events: true}

// readRows copies the rows above a number, going on wherever the store chose to pause.
func readRows(t TB, v store.View, after uint64, hint store.RowHint) []ledger.Row {
	t.Helper()
	var out []ledger.Row
	for {
		seen := after
		last, end, err := v.Rows(after, hint, func(r *ledger.Row) bool {
			if r.Seq <= seen {
				t.Errorf("rows after %d: row %d comes after row %d", after, r.Seq, seen)
			}
			seen = r.Seq
			out = append(out, r.Clone())
			return true
		})
		switch {
		case err != nil:
			t.Fatalf("rows after %d: %v", after, err)
		case end:
			return out
		case last <= after || last < seen:
			t.Fatalf("rows after %d: stopped at row %d after showing row %d, so a reader could not go on", after, last,
				seen)
		}
		after = last
	}
}

// corrections lists the rows that correct each key.
func corrections(rows []ledger.Row) map[usage.Key][]ledger.Row {
	out := map[usage.Key][]ledger.Row{}
	for _, r := range rows {
		if r.Event != nil && r.Event.IsCorrection() {
			k := usage.KeyOfID(r.Event.Corrects)
			out[k] = append(out[k], r)
		}
	}
	return out
}
