package engine

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store/engine/state"
	"github.com/tallystick/tallystick/internal/store/engine/wire"
)

// prunedVersion is a record some of whose rows have left. Each of its sections says after its number of rows whether it
// is whole, and if not, how many rows are left and what was kept of the tree. A row that is left stands behind how many
// rows before it have left, doubled, plus one when it is of an archived month. docs/formats.md gives every byte.
const prunedVersion = 6

const (
	sectionWhole  = 0
	sectionPruned = 1
)

// readPrunedHead reads what a pruned record adds to the head of a section and returns how many rows are left.
func readPrunedHead(r *wire.Reader, h *sectionHead, rows uint64) uint64 {
	switch r.Byte() {
	case sectionWhole:
		return rows
	case sectionPruned:
		h.pruned = true
		left := r.Uvarint()
		h.kept = readKept(r, h.first, rows)
		return left
	}
	r.Bad = true
	return 0
}

// pruned encodes a section of a pruned record.
func (w *recordWriter) pruned(b []byte, s *section) []byte {
	w.refs.reset()
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(s.tenant))
	b = binary.AppendUvarint(b, s.first)
	b = binary.AppendVarint(b, int64(s.at))
	b = binary.AppendUvarint(b, uint64(s.count()))
	b = append(b, sectionPruned)
	b = binary.AppendUvarint(b, uint64(len(s.rows)))
	b = s.kept.append(b)
	b = w.rows(b, s)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// mark says how many rows before a row that is left have left, and whether it is of an archived month.
func (s *section) mark(i int, next uint64) uint64 {
	m := (s.rows[i].Seq - next) << 1
	if s.archived[i] {
		m |= 1
	}
	return m
}

// copy writes a section that stays as it is into a pruned record.
func (h *sectionHead) copy(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(h.tenant))
	b = binary.AppendUvarint(b, h.first)
	b = binary.AppendVarint(b, int64(h.at))
	b = binary.AppendUvarint(b, uint64(h.rows))
	if h.pruned {
		b = binary.AppendUvarint(append(b, sectionPruned), uint64(h.left))
		b = h.kept.append(b)
	} else {
		b = append(b, sectionWhole)
	}
	b = append(b, h.body...)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// headAt finds a section in a record. In a pruned one sections are no longer where they were.
func headAt(payload []byte, tenant uint32, p state.Section) (sectionHead, error) {
	if first(payload) == recordVersion {
		if uint64(p.Offset) >= uint64(len(payload)) {
			return sectionHead{}, errRecord
		}
		h, _, err := readHead(payload[p.Offset:], recordVersion)
		return h, err
	}
	heads, err := readHeads(payload, nil)
	if err != nil {
		return sectionHead{}, err
	}
	for _, h := range heads {
		if h.tenant == tenant && h.first == p.First {
			return h, nil
		}
	}
	return sectionHead{}, errRecord
}

func (s *section) isArchived(i int) bool { return s.archived != nil && s.archived[i] }

// found returns a row of a section of the book, or says that it has left.
func (b *book) found(s *section, seq uint64) (*ledger.Row, error) {
	if r := s.row(seq); r != nil {
		return r, nil
	}
	return nil, b.published.Load().resident.Horizon.GoneOf(seq)
}

// replayArchived takes note of a row that is left of an archived month. The base of the month has its part in every
// counter.
func (e *Engine) replayArchived(b *book, r *ledger.Row) {
	for i := range r.Event.Outcomes {
		e.use(b, r.Event.Outcomes[i].Meter)
	}
	if r.Event.IsCorrection() {
		e.noteCorrection(b, r.Event, r.Seq)
	}
}
