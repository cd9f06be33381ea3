package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store"
)

// Entities of all kinds, found by their id and by their terms. No name holds a zero byte, so that one ends each of
// them; kinds are not known here:
//
//	'e' tenant, kind 0 id                    → the entity, with its terms
//	'n' tenant, kind 0 index 0 value 0 id    →
//	'v' kind 0 version, tenant, id           → ; the version of the declaration that the terms are of
//	'g' tenant, kind 0 id 0 seq              → ; every change of it
//	'z' when it expires, tenant, kind 0 id   →
//	'k' tenant, kind 0 version               → the first row that has it; critical ones alone
//	'd' tenant, meter                        → ; it has events
//
// 'v' and 'z' begin with what is looked for in all tenants at once. What expires has neither terms nor a history.
const (
	kindEntity   = 'e'
	kindTerm     = 'n'
	kindIndexed  = 'v'
	kindHistory  = 'g'
	kindExpiry   = 'z'
	kindCritical = 'k'
	kindUsed     = 'd'
)

// Entity is an entity as its last change left it, and how it is found.
type Entity struct {
	entity.Entity
	Indexed uint8 // version of the declaration that the terms are of
	Terms   []entity.Term
	Expires calendar.Micros // when it may be forgotten; 0: never
}

func named(kind byte, tenant uint32, names ...string) []byte {
	b := key(kind, tenant)
	for i, name := range names {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, name...)
	}
	return b
}

func entityKey(tenant uint32, kind, id string) []byte { return named(kindEntity, tenant, kind, id) }

func termKey(tenant uint32, kind string, t entity.Term, id string) []byte {
	return named(kindTerm, tenant, kind, t.Index, t.Value, id)
}

func historyKey(tenant uint32, kind, id string) []byte {
	return named(kindHistory, tenant, kind, id, "")
}

func indexedKey(kind string, version uint8, tenant uint32, id string) []byte {
	b := append(append([]byte{kindIndexed}, kind...), 0, version)
	return append(binary.BigEndian.AppendUint32(b, tenant), id...)
}

func expiryKey(at calendar.Micros, tenant uint32, kind, id string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kindExpiry}, uint64(max(at, 0)))
	b = append(binary.BigEndian.AppendUint32(b, tenant), kind...)
	return append(append(b, 0), id...)
}

// The first byte of an entity's value.
const entityCritical = 1

func appendEntity(b []byte, e *Entity) []byte {
	flags := byte(0)
	if e.Critical {
		flags |= entityCritical
	}
	b = append(b, flags, e.Version, e.Indexed)
	b = binary.AppendUvarint(b, e.Seq)
	b = binary.AppendVarint(b, int64(e.At))
	b = binary.AppendVarint(b, int64(e.Expires))
	b = binary.AppendUvarint(b, uint64(len(e.Terms)))
	for _, t := range e.Terms {
		for _, s := range [...]string{t.Index, t.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return append(b, e.Data...)
}

// readEntity takes a value apart. What it returns has memory of its own.
func readEntity(kind, id string, v []byte) (Entity, error) {
	r := read(v)
	e := Entity{Entity: entity.Entity{State: entity.State{Kind: kind, ID: id}}}
	e.Critical = r.Byte()&entityCritical != 0
	e.Version, e.Indexed = r.Byte(), r.Byte()
	e.Seq, e.At = r.Uvarint(), calendar.Micros(r.Varint())
	e.Expires = calendar.Micros(r.Varint())
	for n := r.Uvarint(); n > 0 && !r.Bad; n-- {
		e.Terms = append(e.Terms, entity.Term{Index: string(r.Take(r.Uvarint())), Value: string(r.Take(r.Uvarint()))})
	}
	e.Data = append([]byte{}, r.Rest...)
	if r.err() != nil {
		return Entity{}, fmt.Errorf("%s %q: %w", kind, id, errValue)
	}
	return e, nil
}

// Entity reads an entity; false when there is none.
func (s *Reader) Entity(tenant uint32, kind, id string) (Entity, bool, error) {
	v, err := s.get(entityKey(tenant, kind, id))
	if v == nil || err != nil {
		return Entity{}, false, err
	}
	e, err := readEntity(kind, id, v)
	return e, err == nil, err
}

// Entities lists entities of a kind, but none that skip names.
func (s *Reader) Entities(
	tenant uint32, kind string, p store.Page, skip func(id string) bool,
) (out []entity.Entity, err error) {
	prefix := entityKey(tenant, kind, "")
	err = s.page(prefix, p, func(id string, v []byte) (bool, error) {
		if len(out) >= p.Limit {
			return false, nil
		}
		if skip(id) {
			return true, nil
		}
		e, err := readEntity(kind, id, v)
		out = append(out, e.Entity)
		return true, err
	})
	return out, err
}

// page calls fn for the entries of a page that follow a prefix, with the rest of their keys, until fn returns false.
func (s *Reader) page(prefix []byte, p store.Page, fn func(id string, value []byte) (bool, error)) (err error) {
	iter, err := s.from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	place := append(slices.Clone(prefix), p.After...)
	var ok bool
	step := iter.Prev
	switch {
	case !p.Backward:
		ok, step = iter.SeekGE(append(place, 0)), iter.Next // no id holds a zero byte
	case p.After == "":
		ok = iter.Last()
	default:
		ok = iter.SeekLT(place)
	}
	for ; ok; ok = step() {
		more, err := fn(string(iter.Key()[len(prefix):]), iter.Value())
		if err != nil || !more {
			return err
		}
	}
	return iter.Error()
}

// Search names entities by a term.
type Search struct {
	Kind string
	Term entity.Term
	// Version is that of the declaration. Of entities that have the terms of another one, Wants decides.
	Version uint8
	Wants   func(*entity.Entity) (bool, error)
	Skip    func(id string) bool // these are left out
}

// EntitiesBy lists entities of a kind that have a term. Those with the terms of another declaration are read first:
// one that gets its new terms meanwhile is then seen twice, not missed.
func (s *Reader) EntitiesBy(tenant uint32, q *Search, p store.Page) ([]entity.Entity, error) {
	out, err := s.outdated(tenant, q, p)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i := range out {
		found[out[i].ID] = true
	}
	hits := 0
	err = s.page(termKey(tenant, q.Kind, q.Term, ""), p, func(id string, _ []byte) (bool, error) {
		if hits >= p.Limit {
			return false, nil
		}
		if q.Skip(id) || found[id] {
			return true, nil
		}
		e, ok, err := s.Entity(tenant, q.Kind, id)
		if err != nil || !ok || e.Indexed != q.Version || !slices.Contains(e.Terms, q.Term) {
			return err == nil, err
		}
		hits++
		out = append(out, e.Entity)
		return true, nil
	})
	return p.Cut(out), err
}

// outdated lists what a search wants of a tenant's entities that have the terms of another declaration.
func (s *Reader) outdated(tenant uint32, q *Search, p store.Page) (out []entity.Entity, err error) {
	prefix := append(append([]byte{kindIndexed}, q.Kind...), 0)
	iter, err := s.from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	for ok := iter.First(); ok; {
		_, version, of, id, err := readIndexed(iter.Key())
		if err != nil {
			return nil, err
		}
		switch {
		case version == q.Version || of > tenant:
			if version == math.MaxUint8 {
				return out, nil
			}
			ok = iter.SeekGE(indexedKey(q.Kind, version+1, tenant, ""))
			continue
		case of < tenant:
			ok = iter.SeekGE(indexedKey(q.Kind, version, tenant, ""))
			continue
		}
		if p.Holds(id) && !q.Skip(id) {
			if out, err = s.addWanted(out, tenant, q, id); err != nil {
				return nil, err
			}
		}
		ok = iter.Next()
	}
	return out, iter.Error()
}

func (s *Reader) addWanted(out []entity.Entity, tenant uint32, q *Search, id string) ([]entity.Entity, error) {
	e, ok, err := s.Entity(tenant, q.Kind, id)
	if err != nil || !ok {
		return out, err
	}
	wanted, err := q.Wants(&e.Entity)
	if wanted {
		out = append(out, e.Entity)
	}
	return out, err
}

func readIndexed(k []byte) (kind string, version uint8, tenant uint32, id string, err error) {
	i := slices.Index(k, 0)
	if i < 0 || len(k) < i+6 {
		return "", 0, 0, "", fmt.Errorf("entry of an indexed entity: %w", errValue)
	}
	return string(k[1:i]), k[i+1], binary.BigEndian.Uint32(k[i+2:]), string(k[i+6:]), nil
}

// LastChange is the number of the last row up to seq that changed an entity, or 0.
func (s *Reader) LastChange(tenant uint32, kind, id string, seq uint64) (last uint64, err error) {
	prefix := historyKey(tenant, kind, id)
	iter, err := s.from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if iter.SeekLT(binary.BigEndian.AppendUint64(slices.Clone(prefix), seq+1)) {
		if len(iter.Key()) != len(prefix)+8 {
			return 0, fmt.Errorf("change of %s %q: %w", kind, id, errValue)
		}
		last = binary.BigEndian.Uint64(iter.Key()[len(prefix):])
	}
	return last, iter.Error()
}

// Critical lists, as entities without data, the critical kinds and versions that a tenant's rows have.
func (s *Reader) Critical(tenant uint32) (out []entity.Entity, err error) {
	prefix := key(kindCritical, tenant)
	err = s.scan(prefix, prefix, func(k, v []byte) (bool, error) {
		name := k[len(prefix):]
		if len(name) < 2 || name[len(name)-2] != 0 {
			return false, fmt.Errorf("critical kind: %w", errValue)
		}
		r := read(v)
		e := entity.Entity{Seq: r.Uvarint()}
		e.Kind, e.Version, e.Critical = string(name[:len(name)-2]), name[len(name)-1], true
		out = append(out, e)
		return true, r.err()
	})
	return out, err
}

// SetCritical notes the first row of a tenant that has a critical kind in a version.
func (c *Checkpoint) SetCritical(tenant uint32, kind string, version uint8, seq uint64) {
	c.set(append(named(kindCritical, tenant, kind), 0, version), binary.AppendUvarint(nil, seq))
}

func usedKey(tenant, meter uint32) []byte {
	return binary.BigEndian.AppendUint32(key(kindUsed, tenant), meter)
}

// SetUsed notes that a meter has events.
func (c *Checkpoint) SetUsed(tenant, meter uint32) { c.set(usedKey(tenant, meter), nil) }

// Used reports whether a meter has events.
func (s *Reader) Used(tenant, meter uint32) (bool, error) {
	v, err := s.get(usedKey(tenant, meter))
	return v != nil, err
}

// UsedMeters lists the meters of a tenant that have events.
func (s *Reader) UsedMeters(tenant uint32) (out []uint32, err error) {
	prefix := key(kindUsed, tenant)
	err = s.scan(prefix, prefix, func(k, _ []byte) (bool, error) {
		if len(k) != len(prefix)+4 {
			return false, fmt.Errorf("used meter: %w", errValue)
		}
		out = append(out, binary.BigEndian.Uint32(k[len(prefix):]))
		return true, nil
	})
	return out, err
}
