package engine

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
)

// The flags of an entry.
const (
	entrySystem = 1 << iota
	entryLate
	entryGap
	entryFlags = entrySystem | entryLate | entryGap
)

const (
	// maxEntryOverhead bounds what the encoding of an entry adds to its strings: kind, type, given, flags, lengths (8
	// strings), five numbers and three amounts.
	maxEntryOverhead = 4 + 8*5 + 5*10 + 3*20
	// maxRunOverhead bounds what a run of rows that one brought adds to the name: its length, and how many rows.
	maxRunOverhead = 4 + 5
)

// by writes who brought the rows, in runs: a batch is one, so it costs little however many rows it has. The last run
// goes on to the section's end.
func (w *recordWriter) by(b []byte, rows []ledger.Row) []byte {
	runs := 0
	for i := range rows {
		if i == 0 || rows[i].By != rows[i-1].By {
			runs++
		}
	}
	b = binary.AppendUvarint(b, uint64(runs))
	for i := 0; i < len(rows); {
		end := i + 1
		for end < len(rows) && rows[end].By == rows[i].By {
			end++
		}
		b = w.string(b, rows[i].By)
		if end < len(rows) {
			b = binary.AppendUvarint(b, uint64(end-i))
		}
		i = end
	}
	return b
}

// readBy reads who brought each row of a section.
func readBy(r *reader, rows []ledger.Row) {
	runs, next := r.Uvarint(), 0
	for ; runs > 0 && !r.Bad; runs-- {
		by, end := r.string(), len(rows)
		if runs > 1 {
			n := r.Uvarint()
			if n == 0 || n >= uint64(len(rows)-next) {
				break
			}
			end = next + int(n)
		}
		for ; next < end; next++ {
			rows[next].By = by
		}
	}
	r.Bad = r.Bad || runs > 0 || next < len(rows)
}

func (w *recordWriter) entry(b []byte, e *account.Row, at calendar.Micros) []byte {
	flags := byte(0)
	if e.System {
		flags |= entrySystem
	}
	if e.Late {
		flags |= entryLate
	}
	if e.Gap {
		flags |= entryGap
	}
	b = append(b, byte(e.Type), byte(e.Given), flags)
	for _, s := range [...]string{e.ID, e.Account, e.Counter, e.Transfer, e.Hold, e.Corrects, e.Reason, e.Metadata} {
		b = w.string(b, s)
	}
	b = amount.AppendBinary(b, e.Amount)
	b = binary.AppendVarint(b, int64(e.Time-at))
	b = binary.AppendUvarint(b, e.Sequence)
	b = binary.AppendVarint(b, int64(e.Expires))
	b = binary.AppendUvarint(b, e.Version)
	b = amount.AppendBinary(b, e.Balance)
	return amount.AppendBinary(b, e.Held)
}

func readEntry(r *reader, at calendar.Micros) *account.Row {
	e := &account.Row{}
	e.Type, e.Given = account.Type(r.Byte()), account.Given(r.Byte())
	flags := r.Byte()
	e.System, e.Late, e.Gap = flags&entrySystem != 0, flags&entryLate != 0, flags&entryGap != 0
	r.Bad = r.Bad || flags&^entryFlags != 0
	for _, s := range [...]*string{
		&e.ID, &e.Account, &e.Counter, &e.Transfer, &e.Hold, &e.Corrects, &e.Reason, &e.Metadata,
	} {
		*s = r.string()
	}
	e.Amount, e.Time = r.Amount(), at+calendar.Micros(r.Varint())
	e.Sequence, e.Expires, e.Version = r.Uvarint(), calendar.Micros(r.Varint()), r.Uvarint()
	e.Balance, e.Held = r.Amount(), r.Amount()
	return e
}

// entryBound is the largest encoding of an entry.
func entryBound(e *account.Row) int {
	return maxEntryOverhead + len(e.ID) + len(e.Account) + len(e.Counter) + len(e.Transfer) + len(e.Hold) +
		len(e.Corrects) + len(e.Reason) + len(e.Metadata)
}
