package sinks

import (
	"bytes"
	"strings"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/sink"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/store"
)

// Render writes rows of a view as receivers see them.
type Render func(v store.View) (func(b []byte, r *ledger.Row) []byte, error)

// kindOf is what a filter knows a row as, and the key that its order matters to.
func kindOf(r *ledger.Row) (kind sink.Rows, key string) {
	switch r.Kind() {
	case ledger.EventRow:
		return sink.Events, r.Event.Customer
	case ledger.EntryRow:
		return sink.Entries, r.Entry.Account
	default:
		return sink.Changes, ""
	}
}

// wants reports whether a sink carries a row. It never carries rows about itself: each delivery that fails would make
// the next.
func wants(f *sink.Filter, sinkID string, r *ledger.Row) bool {
	if r.Kind() == ledger.ChangeRow && r.Change.EntityType == entityType && r.Change.EntityID == sinkID {
		return false
	}
	kind, _ := kindOf(r)
	return f.Wants(kind, r.Type())
}

func hintOf(f *sink.Filter) store.RowHint {
	return store.RowHint{Events: f.Rows&sink.Events != 0, Entries: f.Rows&sink.Entries != 0,
		Changes: f.Rows&sink.Changes != 0}
}

// stretch is rows that were read at once, for several deliveries: a store reads all rows of a commit for one of them.
type stretch struct {
	from  uint64 // the first row that is in no delivery yet
	to    uint64 // the last row that was looked at
	epoch uint64 // of all of them
	rows  []Row  // those that the sink asks for
}

// enough bounds a stretch: it ends when it has so many rows and so many bytes of them.
type enough struct{ rows, bytes int }

// read reads rows behind a position, up to row last, all of one epoch, until there are enough that the filter asks for.
func read(
	v store.View, render Render, t *tenant.Tenant, f *sink.Filter, sinkID string, after, last uint64, is enough,
) (s stretch, err error) {
	write, err := render(v)
	if err != nil {
		return s, err
	}
	s = stretch{from: after + 1, to: after, epoch: uint64(t.Epoch(after + 1))}
	shown, size := shower{write: write}, 0
	more := func() bool { return len(s.rows) < is.rows || size < is.bytes }
	passed, _, err := v.Rows(after, hintOf(f), func(r *ledger.Row) bool {
		if r.Seq > last || uint64(t.Epoch(r.Seq)) != s.epoch {
			return false
		}
		s.to = r.Seq
		if wants(f, sinkID, r) {
			s.rows = append(s.rows, shown.row(r))
			size += len(s.rows[len(s.rows)-1].Body)
		}
		return more()
	})
	if err != nil {
		return s, err
	}
	// Rows that the store passed over are none that the filter asks for, but may be of the next epoch.
	for passed = min(passed, last); s.to < passed && more() && uint64(t.Epoch(s.to+1)) == s.epoch; {
		s.to++
	}
	return s, nil
}

// cut takes the next delivery of at most so many rows.
func (s *stretch) cut(f *sink.Filter, most int) (b begun, rows []Row) {
	b = begun{From: s.from, To: s.to, Epoch: s.epoch, Filter: *f}
	rows = s.rows
	if len(rows) > most {
		rows = rows[:most]
		b.To = rows[most-1].Seq
	}
	s.rows, s.from = s.rows[len(rows):], b.To+1
	return b, rows
}

// shower shows rows, one after the other: a body that grew by itself would be copied several times.
type shower struct {
	write   func(b []byte, r *ledger.Row) []byte
	scratch []byte
}

func (s *shower) row(r *ledger.Row) Row {
	_, key := kindOf(r)
	s.scratch = s.write(s.scratch[:0], r)
	return Row{Seq: r.Seq, Type: strings.Clone(r.Type()), Key: strings.Clone(key), Body: bytes.Clone(s.scratch)}
}

// rows reads the rows of a delivery. They are the same whenever they are read.
func (b *begun) rows(v store.View, render Render, sinkID string) ([]Row, error) {
	write, err := render(v)
	if err != nil {
		return nil, err
	}
	var out []Row
	shown := shower{write: write}
	for after := b.From - 1; after < b.To; {
		last, _, err := v.Rows(after, hintOf(&b.Filter), func(r *ledger.Row) bool {
			if r.Seq > b.To {
				return false
			}
			if wants(&b.Filter, sinkID, r) {
				out = append(out, shown.row(r))
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
