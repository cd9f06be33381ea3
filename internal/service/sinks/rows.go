package sinks

import (
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// Render writes rows of a view as receivers see them.
type Render func(v store.View) (func(b []byte, r *ledger.Row) []byte, error)

// Types of rows that are no changes.
const (
	usageRecorded = "usage.recorded"
	entryRecorded = "entry.recorded"
)

// kindOf is what a filter knows of a row, and the key that its order matters to.
func kindOf(r *ledger.Row) (kind sink.Rows, rowType, key string) {
	switch r.Kind() {
	case ledger.EventRow:
		return sink.Events, usageRecorded, r.Event.Customer
	case ledger.EntryRow:
		return sink.Entries, entryRecorded, r.Entry.Account
	default:
		return sink.Changes, r.Change.Type, ""
	}
}

// wants reports whether a sink carries a row. It never carries rows about itself: each delivery that fails would make
// the next.
func wants(f *sink.Filter, sinkID string, r *ledger.Row) bool {
	if r.Kind() == ledger.ChangeRow && r.Change.EntityType == entityType && r.Change.EntityID == sinkID {
		return false
	}
	kind, rowType, _ := kindOf(r)
	return f.Wants(kind, rowType)
}

func hintOf(f *sink.Filter) store.RowHint {
	return store.RowHint{Events: f.Rows&sink.Events != 0, Entries: f.Rows&sink.Entries != 0,
		Changes: f.Rows&sink.Changes != 0}
}

// plan finds the next rows behind a position that a filter asks for: at most so many, up to row last, all of one epoch.
// The range ends with the last row that was looked at; found is false when the sink asks for none of them.
func plan(
	v store.View, t *tenant.Tenant, f sink.Filter, sinkID string, after, last uint64, most int,
) (b begun, found bool, err error) {
	b = begun{From: after + 1, To: after, Filter: f, Epoch: uint64(t.Epoch(after + 1))}
	n := 0
	passed, _, err := v.Rows(after, hintOf(&f), func(r *ledger.Row) bool {
		if r.Seq > last || uint64(t.Epoch(r.Seq)) != b.Epoch {
			return false
		}
		b.To = r.Seq
		if wants(&f, sinkID, r) {
			n++
		}
		return n < most
	})
	if err != nil {
		return b, false, err
	}
	// Rows that the store passed over are none that the filter asks for, but may be of the next epoch.
	for passed = min(passed, last); b.To < passed && uint64(t.Epoch(b.To+1)) == b.Epoch && n < most; {
		b.To++
	}
	return b, n > 0, nil
}

// rows reads the rows of a delivery. They are the same whenever they are read.
func (b *begun) rows(v store.View, render Render, sinkID string) ([]Row, error) {
	write, err := render(v)
	if err != nil {
		return nil, err
	}
	var out []Row
	for after := b.From - 1; after < b.To; {
		last, _, err := v.Rows(after, hintOf(&b.Filter), func(r *ledger.Row) bool {
			if r.Seq > b.To {
				return false
			}
			if wants(&b.Filter, sinkID, r) {
				_, rowType, key := kindOf(r)
				out = append(out, Row{Seq: r.Seq, Type: rowType, Key: key, Body: write(nil, r)})
			}
			return r.Seq < b.To
		})
		if err != nil {
			return nil, err
		}
		if last <= after {
			break // it ended at a row beyond the range
		}
		after = last
	}
	return out, nil
}
