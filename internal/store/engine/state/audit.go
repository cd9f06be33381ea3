package state

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store"
)

// The audit log is every change row, and postings by which a question finds its rows without reading others. A posting
// is a set of rows that share something, in order of their numbers:
//
//	'a' seq                       → the audit event, with its time
//	'p' what, length, value, seq  →
//
// Two properties that are both common, and never together, would make their intersection long to find: they have
// postings in pairs.
const (
	kindAudit   = 'a'
	kindPosting = 'p'

	byEntityType = 'E'
	byEntityID   = 'I'
	byType       = 'T'
	bySource     = 'S'
	byTypeSource = 'X'
	byKindSource = 'Y' // entity type and source
)

// pair joins two values; no value holds a zero byte.
func pair(a, b string) string { return a + "\x00" + b }

func posting(tenant uint32, what byte, value string) []byte {
	b := append(key(kindPosting, tenant), what)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}

func auditKey(tenant uint32, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(key(kindAudit, tenant), seq)
}

// SetAudit writes a change row into the audit log.
func (c *Checkpoint) SetAudit(tenant uint32, r *ledger.Row) {
	e := &r.Change.Event
	v := binary.AppendVarint(nil, int64(r.At))
	for _, s := range [...]string{e.Type, e.Source, e.Actor, e.EntityType, e.EntityID} {
		v = append(binary.AppendUvarint(v, uint64(len(s))), s...)
	}
	c.set(auditKey(tenant, r.Seq), append(v, e.Payload...))
	for _, p := range [...]struct {
		what  byte
		value string
	}{
		{byEntityType, e.EntityType}, {byEntityID, e.EntityID}, {byType, e.Type}, {bySource, e.Source},
		{byTypeSource, pair(e.Type, e.Source)}, {byKindSource, pair(e.EntityType, e.Source)},
	} {
		c.set(binary.BigEndian.AppendUint64(posting(tenant, p.what, p.value), r.Seq), nil)
	}
}

func readAudit(seq uint64, v []byte) (ledger.Row, error) {
	r := read(v)
	var e audit.Event
	at := calendar.Micros(r.Varint())
	for _, s := range [...]*string{&e.Type, &e.Source, &e.Actor, &e.EntityType, &e.EntityID} {
		*s = string(r.Take(r.Uvarint()))
	}
	e.Payload = string(r.Rest)
	return ledger.Row{Seq: seq, At: at, Change: &ledger.Change{Event: e}}, r.err()
}

// Audit lists what the query names below a row, the newest first.
func (s *State) Audit(tenant uint32, q store.AuditQuery, below uint64) (out []ledger.Row, err error) {
	if q.To != 0 {
		first, err := s.firstAt(tenant, q.To, below)
		if err != nil {
			return nil, err
		}
		below = min(below, first)
	}
	w := &walk{state: s, tenant: tenant}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(&q); err != nil {
		return nil, err
	}
	for len(out) < q.Limit {
		seq, err := w.next(below)
		if err != nil || seq == 0 {
			return out, err
		}
		below = seq
		if q.Offset > 0 && q.From == 0 {
			q.Offset--
			continue
		}
		v, err := s.get(auditKey(tenant, seq))
		if err != nil {
			return nil, err
		}
		row, err := readAudit(seq, v)
		if err != nil {
			return nil, err
		}
		if row.At < q.From {
			return out, nil // and so is all before it
		}
		if q.Offset > 0 {
			q.Offset--
			continue
		}
		out = append(out, row)
	}
	return out, nil
}

// firstAt finds by halving the first change at or after a time: times rise with numbers.
func (s *State) firstAt(tenant uint32, at calendar.Micros, below uint64) (first uint64, err error) {
	prefix := key(kindAudit, tenant)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	low, high := uint64(0), below // the answer lies in (low, high]
	for low+1 < high {
		mid := low + (high-low)/2
		if !iter.SeekGE(auditKey(tenant, mid)) {
			if err := iter.Error(); err != nil {
				return 0, err
			}
			high = mid
			continue
		}
		row, err := readAudit(binary.BigEndian.Uint64(iter.Key()[len(prefix):]), iter.Value())
		if err != nil {
			return 0, err
		}
		if row.At >= at {
			high = mid
		} else {
			low = max(mid, row.Seq)
		}
	}
	return high, nil
}

// walk finds the rows that are in all of some postings, from the last to the first.
type walk struct {
	state  *State
	tenant uint32
	sets   []set
}

type set struct {
	iter   *pebble.Iterator
	prefix []byte
	at     uint64 // the row that iter stands at; zero: nowhere yet
}

// last is the last row of the set below the given one, or 0. The next one down is only a step away.
func (s *set) last(below uint64) (uint64, error) {
	step := s.iter.Prev
	if s.at != below {
		step = func() bool { return s.iter.SeekLT(binary.BigEndian.AppendUint64(append([]byte{}, s.prefix...), below)) }
	}
	if !step() {
		return 0, s.iter.Error()
	}
	s.at = binary.BigEndian.Uint64(s.iter.Key()[len(s.prefix):])
	return s.at, nil
}

// open chooses the fewest postings that say all of the query.
func (w *walk) open(q *store.AuditQuery) error {
	var err error
	add := func(prefix []byte) {
		if err != nil {
			return
		}
		var iter *pebble.Iterator
		if iter, err = w.state.db.NewIter(&pebble.IterOptions{LowerBound: prefix,
			UpperBound: after(prefix)}); err == nil {
			w.sets = append(w.sets, set{iter: iter, prefix: prefix})
		}
	}
	source := q.Source
	if q.EntityID != "" {
		add(posting(w.tenant, byEntityID, q.EntityID))
	}
	switch {
	case q.Type != "" && source != "":
		add(posting(w.tenant, byTypeSource, pair(q.Type, source)))
		source = ""
	case q.Type != "":
		add(posting(w.tenant, byType, q.Type))
	}
	switch {
	case q.EntityType != "" && source != "":
		add(posting(w.tenant, byKindSource, pair(q.EntityType, source)))
		source = ""
	case q.EntityType != "":
		add(posting(w.tenant, byEntityType, q.EntityType))
	}
	if source != "" {
		add(posting(w.tenant, bySource, source))
	}
	if len(w.sets) == 0 {
		add(key(kindAudit, w.tenant))
	}
	return err
}

// next is the last row below the given one that all sets hold, or 0. Each set in turn lowers the candidate until all
// agree.
func (w *walk) next(below uint64) (uint64, error) {
	for agreed, i := 0, 0; ; i = (i + 1) % len(w.sets) {
		seq, err := w.sets[i].last(below)
		if err != nil || seq == 0 {
			return 0, err
		}
		if seq+1 == below && agreed > 0 {
			agreed++
		} else {
			agreed = 1
		}
		if agreed == len(w.sets) {
			return seq, nil
		}
		below = min(seq, math.MaxUint64-1) + 1
	}
}

func (w *walk) close() error {
	var err error
	for _, s := range w.sets {
		err = errors.Join(err, s.iter.Close())
	}
	return err
}
