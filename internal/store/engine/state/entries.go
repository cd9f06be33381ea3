package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
)

// The first byte of a key says what it is an entry of; the tenant's number follows in most.
// entities.go and audit.go have more of them.
const (
	kindMeta       = 'm'
	kindHead       = 'h' // → id, seq, tree, clock
	kindTile       = 'l' // level, index → hash
	kindCounter    = 'c' // month, slug, customer → counter
	kindSection    = 's' // first seq → where it is
	kindCorrected  = 'x' // target key, meter → what corrections did
	kindCorrection = 'y' // target key, seq of the correcting row →
	kindMember     = 'u' // counter, generation, member → on time, at all
	kindTally      = 't' // month, meter → what all customers used
	kindDay        = 'r' // meter, day → what all customers used by the hour
)

func key(kind byte, tenant uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 64), kind), tenant)
}

// after is the first key that does not start with prefix.
func after(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// scan calls fn for the entries from a key on that start with prefix, until fn returns false.
func (s *Reader) scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) (err error) {
	iter, err := s.from.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok; ok = iter.Next() {
		more, err := fn(iter.Key(), iter.Value())
		if err != nil || !more {
			return err
		}
	}
	return iter.Error()
}

var errValue = errors.New("an entry of the state does not decode")

// Head is a tenant's number, id and head.
type Head struct {
	Number uint32
	ID     string
	ledger.Head
}

// SetHead writes a tenant's head.
func (c *Checkpoint) SetHead(h Head) {
	v := binary.AppendUvarint(nil, h.Seq)
	v = tree.AppendBinary(v, h.Tree)
	v = binary.AppendVarint(v, int64(h.Clock))
	c.set(key(kindHead, h.Number), append(v, h.ID...))
}

// Heads lists all tenants.
func (s *Reader) Heads() (out []Head, err error) {
	prefix := []byte{kindHead}
	err = s.scan(prefix, prefix, func(k, v []byte) (bool, error) {
		r := read(v)
		h := Head{Number: binary.BigEndian.Uint32(k[1:])}
		h.Seq = r.Uvarint()
		h.Tree = r.tree()
		h.Clock = calendar.Micros(r.Varint())
		h.ID = string(r.Rest)
		out = append(out, h)
		return true, r.err()
	})
	return out, err
}

// tree reads a tree.
func (r *reader) tree() tree.Tree {
	t, n, err := tree.ReadBinary(r.Rest)
	if r.Bad = r.Bad || err != nil; r.Bad {
		return tree.Tree{}
	}
	r.Rest = r.Rest[n:]
	return t
}

func tileKey(tenant uint32, level int, index uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key(kindTile, tenant), byte(level)), index)
}

// SetTile writes the hash of a full tile of a tenant's tree.
func (c *Checkpoint) SetTile(tenant uint32, t tree.Tile) {
	c.set(tileKey(tenant, t.Level, t.Index), t.Hash[:])
}

// Tiles calls fn for the tiles of a level from one index to another, in order, as far as the state has them.
func (s *Reader) Tiles(tenant uint32, level int, first, last uint64, fn func(tree.Tile)) error {
	prefix := append(key(kindTile, tenant), byte(level))
	return s.scan(prefix, tileKey(tenant, level, first), func(k, v []byte) (bool, error) {
		if len(k) != len(prefix)+8 || len(v) != tree.HashSize {
			return false, fmt.Errorf("tile entry: %w", errValue)
		}
		index := binary.BigEndian.Uint64(k[len(prefix):])
		if index > last {
			return false, nil
		}
		fn(tree.Tile{Level: level, Index: index, Hash: tree.Hash(v)})
		return true, nil
	})
}

// Section says where a tenant's rows from First on are.
type Section struct {
	First    uint64
	Rows     int
	Position journal.Position
	Offset   uint32 // within the record's payload
	Adjusted bool   // has adjusted events
	Changes  bool   // has changes
	Entries  bool   // has entries
	// MinTime and MaxTime bound the times of its events; Min is above Max when it has none.
	MinTime, MaxTime calendar.Micros
}

// Holds reports whether the row of that number is in the section.
func (s *Section) Holds(seq uint64) bool { return seq >= s.First && seq < s.First+uint64(s.Rows) }

// SetSection writes where a section is.
func (c *Checkpoint) SetSection(tenant uint32, s *Section) {
	v := binary.AppendUvarint(nil, uint64(s.Rows))
	v = binary.AppendUvarint(v, uint64(s.Position.Segment))
	v = binary.AppendUvarint(v, uint64(s.Position.Offset))
	v = binary.AppendUvarint(v, uint64(s.Offset))
	flags := byte(0)
	if s.Adjusted {
		flags |= 1
	}
	if s.Changes {
		flags |= 2
	}
	if s.Entries {
		flags |= 4
	}
	v = append(v, flags)
	v = binary.AppendVarint(v, int64(s.MinTime))
	v = binary.AppendVarint(v, int64(s.MaxTime-s.MinTime))
	c.set(binary.BigEndian.AppendUint64(key(kindSection, tenant), s.First), v)
}

func readSection(k, v []byte) (Section, error) {
	r := read(v)
	s := Section{First: binary.BigEndian.Uint64(k[5:]), Rows: int(r.Uvarint())}
	s.Position = journal.Position{Segment: uint32(r.Uvarint()), Offset: uint32(r.Uvarint())}
	s.Offset = uint32(r.Uvarint())
	flags := r.Byte()
	s.Adjusted, s.Changes, s.Entries = flags&1 != 0, flags&2 != 0, flags&4 != 0
	s.MinTime = calendar.Micros(r.Varint())
	s.MaxTime = s.MinTime + calendar.Micros(r.Varint())
	return s, r.err()
}

// SectionOf finds the section that holds a row; false when the state has none.
func (s *State) SectionOf(tenant uint32, seq uint64) (out Section, ok bool, err error) {
	prefix := key(kindSection, tenant)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return out, false, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if iter.SeekLT(binary.BigEndian.AppendUint64(key(kindSection, tenant), seq+1)) {
		out, err = readSection(iter.Key(), iter.Value())
		ok = out.Holds(seq)
	}
	return out, ok && err == nil, errors.Join(err, iter.Error())
}

// Sections lists sections from the one with that first seq on, until fn returns false.
func (s *State) Sections(tenant uint32, first uint64, fn func(Section) bool) error {
	prefix := key(kindSection, tenant)
	return s.scan(prefix, binary.BigEndian.AppendUint64(key(kindSection, tenant), first),
		func(k, v []byte) (bool, error) {
			sec, err := readSection(k, v)
			return err == nil && fn(sec), err
		})
}

// targetKey ends the variable part with a zero byte, which no name contains.
func targetKey(kind byte, tenant uint32, k usage.Key) []byte {
	b := append(key(kind, tenant), byte(k.Space))
	return append(append(b, k.Name...), 0)
}

// SetCorrected writes what corrections have done to a fact in a meter.
func (c *Checkpoint) SetCorrected(tenant uint32, target usage.Key, meter uint32, v usage.Corrected) {
	b := binary.AppendUvarint(nil, uint64(v.Times))
	b = binary.AppendUvarint(b, uint64(v.TimesOnTime))
	b = amount.AppendBinary(b, v.All)
	b = amount.AppendBinary(b, v.OnTime)
	c.set(binary.BigEndian.AppendUint32(targetKey(kindCorrected, tenant, target), meter), b)
}

// Corrected reads what SetCorrected wrote.
func (s *State) Corrected(tenant uint32, target usage.Key, meter uint32) (usage.Corrected, error) {
	v, err := s.get(binary.BigEndian.AppendUint32(targetKey(kindCorrected, tenant, target), meter))
	if v == nil || err != nil {
		return usage.Corrected{}, err
	}
	r := read(v)
	c := usage.Corrected{Times: int(r.Uvarint()), TimesOnTime: int(r.Uvarint()), All: r.Amount(), OnTime: r.Amount()}
	return c, r.err()
}

// AddCorrection notes that a row corrects a fact.
func (c *Checkpoint) AddCorrection(tenant uint32, target usage.Key, seq uint64) {
	c.set(binary.BigEndian.AppendUint64(targetKey(kindCorrection, tenant, target), seq), nil)
}

// Corrections lists the rows that correct a fact.
func (s *State) Corrections(tenant uint32, target usage.Key) (out []uint64, err error) {
	prefix := targetKey(kindCorrection, tenant, target)
	err = s.scan(prefix, prefix, func(k, _ []byte) (bool, error) {
		if len(k) != len(prefix)+8 {
			return false, errValue
		}
		out = append(out, binary.BigEndian.Uint64(k[len(prefix):]))
		return true, nil
	})
	return out, err
}

func memberKey(tenant uint32, id usage.CounterID, generation uint32, member string) []byte {
	b := binary.BigEndian.AppendUint32(key(kindMember, tenant), uint32(id.Month))
	b = binary.BigEndian.AppendUint32(b, id.Meter)
	b = append(append(b, id.Customer...), 0)
	b = binary.BigEndian.AppendUint32(b, generation)
	return append(b, member...)
}

// SetMember notes a member of a unique meter's counter.
func (c *Checkpoint) SetMember(tenant uint32, id usage.CounterID, generation uint32, member string, onTime bool) {
	v := []byte{0}
	if onTime {
		v[0] = 1
	}
	c.set(memberKey(tenant, id, generation, member), v)
}

// Member reads what SetMember wrote.
func (s *State) Member(tenant uint32, id usage.CounterID, generation uint32, member string) (onTime, seen bool,
	err error) {
	v, err := s.get(memberKey(tenant, id, generation, member))
	if v == nil || err != nil {
		return false, false, err
	}
	if len(v) != 1 {
		return false, false, fmt.Errorf("member entry: %w", errValue)
	}
	return v[0] == 1, true, nil
}
