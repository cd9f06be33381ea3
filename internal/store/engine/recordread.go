package engine

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/audit"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/wire"
	"github.com/tallystick/tallystick/internal/store/resident"
)

var errRecord = errors.New("journal record does not decode although its checksum is right: " +
	"written by another build, or by a fault in one")

// reader takes a payload apart. Strings that it returns share the payload's memory.
type reader struct {
	wire.Reader
	refs []string
}

func (r *reader) take(n uint64) string {
	b := r.Take(n)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (r *reader) string() string {
	ref := r.Uvarint()
	if ref == 0 {
		s := r.take(r.Uvarint())
		r.refs = append(r.refs, s)
		return s
	}
	if ref > uint64(len(r.refs)) {
		r.Bad = true
		return ""
	}
	return r.refs[ref-1]
}

// sectionHead is what a section says of itself before its rows.
type sectionHead struct {
	tenant uint32
	first  uint64
	at     calendar.Micros
	rows   int
	body   []byte
	offset uint32 // of the section within the payload

	pruned bool // rows of it have left: this many are left, and this was kept of the tree
	left   int
	kept   kept
}

// readHeads lists the sections of a payload without decoding their rows.
func readHeads(payload []byte, into []sectionHead) ([]sectionHead, error) {
	if v := first(payload); v != recordVersion && v != prunedVersion {
		return nil, fmt.Errorf("journal record has version %d, this build reads versions %d and %d: "+
			"use the tallystick that wrote it", v, recordVersion, prunedVersion)
	}
	into = into[:0]
	for rest := payload[1:]; len(rest) > 0; {
		h, n, err := readHead(rest, payload[0])
		if err != nil {
			return nil, err
		}
		h.offset = uint32(len(payload) - len(rest))
		into = append(into, h)
		rest = rest[n:]
	}
	return into, nil
}

func readHead(b []byte, version byte) (sectionHead, int, error) {
	if len(b) < 4 {
		return sectionHead{}, 0, errRecord
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return sectionHead{}, 0, errRecord
	}
	r := wire.Reader{Rest: b[4 : 4+n]}
	h := sectionHead{tenant: uint32(r.Uvarint()), first: r.Uvarint(), at: calendar.Micros(r.Varint())}
	rows := r.Uvarint()
	left := rows
	if version == prunedVersion {
		left = readPrunedHead(&r, &h, rows)
	}
	if r.Bad || rows == 0 || left > uint64(len(r.Rest)) || left > rows || h.first == 0 {
		return sectionHead{}, 0, errRecord
	}
	h.rows, h.left, h.body = int(rows), int(left), r.Rest
	return h, int(4 + n), nil
}

// decoder turns sections back into rows. What it returns is valid until its next call, and shares memory with the
// payload.
type decoder struct {
	rows    []ledger.Row
	events  []usage.Row
	changes []ledger.Change
	links   []link
	refs    []string
	keys    []byte

	// What the section's own rows make of the resident set, as far as anything needed it: a meter that comes into being
	// in a section may have events in it.
	set   *resident.Set
	taken int // rows that are in it
}

func (d *decoder) decode(h sectionHead, set *resident.Set) (section, error) {
	// Rows point into the slices below, which therefore must not grow while they are filled.
	d.rows, d.events, d.changes = sized(d.rows, h.left), sized(d.events, h.left), d.changes[:0]
	d.links, d.keys, d.set, d.taken = d.links[:0], nil, set, 0
	r := reader{Reader: wire.Reader{Rest: h.body}, refs: d.refs[:0]}
	s := section{tenant: h.tenant, first: h.first, at: h.at}
	if h.pruned {
		s.had, s.kept, s.archived = h.rows, h.kept, make([]bool, h.left)
	}
	readBy(&r, d.rows)
	key, at := "", h.at
	for i, next := 0, h.first; i < h.left; i, next = i+1, next+1 {
		if h.pruned {
			mark := r.Uvarint()
			next += mark >> 1
			s.archived[i] = mark&1 != 0
			if next >= h.first+uint64(h.rows) {
				return s, errRecord
			}
		}
		row := ledger.Row{Seq: next, At: h.at, By: d.rows[i].By}
		switch flags := r.Byte(); {
		case flags == rowChange:
			d.changes = sized(d.changes, h.left) // most sections have none
			d.changes[i] = readChange(&r)
			row.Change = &d.changes[i]
		case flags == rowEntry:
			row.Entry = readEntry(&r, h.at)
		case flags&rowOther != 0:
			return s, errRecord
		default:
			e := &d.events[i]
			if err := d.event(&r, flags, e, key, at, d.rows[:i]); err != nil {
				return s, err
			}
			row.Event, key, at = e, e.Key.Name, e.Time
		}
		d.rows[i] = row
		if r.Bad {
			return s, errRecord
		}
	}
	d.refs = r.refs
	if r.Bad || len(r.Rest) != 0 {
		return s, errRecord
	}
	s.rows, s.links = d.rows, d.links
	return s, s.checkKept()
}

func readChange(r *reader) ledger.Change {
	c := ledger.Change{Event: audit.Event{
		Type: r.string(), Source: r.string(), Actor: r.string(),
		EntityType: r.string(), EntityID: r.string(), Payload: r.string(),
	}}
	if c.State.Kind = r.string(); c.State.IsZero() {
		return c
	}
	c.State.ID = r.string()
	c.State.Version = r.Byte()
	flags := r.Byte()
	c.State.Critical = flags&stateCritical != 0
	r.Bad = r.Bad || flags&^stateCritical != 0
	if data := r.string(); data != "" {
		c.State.Data = unsafe.Slice(unsafe.StringData(data), len(data))
	}
	return c
}

func (d *decoder) event(
	r *reader, flags byte, e *usage.Row, lastKey string, lastTime calendar.Micros, before []ledger.Row,
) error {
	outcomes := e.Outcomes[:0]
	*e = usage.Row{Event: usage.Event{Given: usage.Given(r.Byte())}}
	if flags&rowDerived != 0 {
		e.Key = usage.Key{Space: usage.DerivedSpace, Name: base64.RawURLEncoding.EncodeToString([]byte(r.take(32)))}
		e.ID = r.string()
	} else {
		e.Key = usage.Key{Space: usage.ClientSpace, Name: d.key(r, lastKey)}
		e.ID = e.Key.Name
	}
	if flags&rowType != 0 {
		e.Type = r.string()
	}
	e.Customer = r.string()
	if flags&rowResource != 0 {
		e.Resource = r.string()
	}
	e.Time = lastTime + calendar.Micros(r.Varint())
	e.Quantity = amount.One
	if flags&rowOne == 0 {
		e.Quantity = r.Amount()
	}
	if flags&rowProperties != 0 {
		e.Properties = r.string()
	}
	if flags&rowCorrection != 0 {
		e.Corrects, e.Reason = r.string(), r.string()
	}
	if flags&rowPlainOutcome != 0 {
		e.Outcomes = append(outcomes, usage.Outcome{Meter: uint32(r.Uvarint()), Value: e.Quantity})
		d.links = append(d.links, link(r.Uvarint()))
	} else {
		n := r.Uvarint()
		if n == 0 || n > uint64(len(r.Rest)) {
			return errRecord
		}
		outcomes = slices.Grow(outcomes, int(n))
		for range n {
			outcomes = append(outcomes, readOutcome(r, e))
			d.links = append(d.links, link(r.Uvarint()))
		}
		e.Outcomes = outcomes
	}
	if r.Bad || !e.Time.Valid() {
		return errRecord
	}
	if flags&rowType == 0 || flags&rowCorrection != 0 {
		slug, err := d.slug(e.Outcomes[0].Meter, before)
		e.Meter = slug
		return err
	}
	return nil
}

// slug names a meter. One that the set does not have comes into being in the section, in a row before.
func (d *decoder) slug(number uint32, before []ledger.Row) (string, error) {
	for {
		if m := d.set.Catalog.Number(number); m != nil {
			return m.Slug, nil
		}
		if d.taken == len(before) {
			return "", errRecord
		}
		r := &before[d.taken]
		d.taken++
		if r.Kind() != ledger.ChangeRow {
			continue
		}
		ent := r.Entity().Clone()
		next, err := d.set.With(&ent)
		if err != nil {
			return "", err
		}
		d.set = next
	}
}

// key rebuilds a front-coded key. Keys get memory of their own in blocks, since only their ends are in the payload.
func (d *decoder) key(r *reader, last string) string {
	shared, rest := int(r.Byte()), int(r.Byte())
	suffix := r.take(uint64(rest))
	if r.Bad || shared > len(last) || shared+rest == 0 {
		r.Bad = true
		return ""
	}
	if shared == 0 {
		return suffix
	}
	if cap(d.keys)-len(d.keys) < shared+rest {
		d.keys = make([]byte, 0, max(4096, shared+rest))
	}
	at := len(d.keys)
	d.keys = append(append(d.keys, last[:shared]...), suffix...)
	return unsafe.String(&d.keys[at], shared+rest)
}

func readOutcome(r *reader, e *usage.Row) usage.Outcome {
	flags := r.Byte()
	o := usage.Outcome{Meter: uint32(r.Uvarint()), Why: usage.Why(flags & outcomeWhy), Value: e.Quantity}
	o.Overage = flags&outcomeOverage != 0
	if o.Why > usage.TargetWas {
		r.Bad = true
		return o
	}
	if flags&outcomeQuantity == 0 {
		o.Value = r.Amount()
	}
	if e.Corrects != "" {
		o.Base = r.Amount()
	}
	if flags&outcomeMember != 0 {
		o.Member = r.string()
	}
	if o.Why != usage.OnTime {
		o.Amount = r.Amount()
	}
	return o
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func first(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	return int(b[0])
}
