package state

import (
	"encoding/binary"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
)

// SetEntity writes an entity in the place of the one that the state has, and the rows that changed it since. The old
// one says by which terms it was found, so that exactly these are taken out. A checkpoint sets each entity once.
func (s *State) SetEntity(c *Checkpoint, tenant uint32, e *Entity, changes []uint64) error {
	old, ok, err := s.Entity(tenant, e.Kind, e.ID)
	if err != nil {
		return fmt.Errorf("read what is kept of an entity: %w", err)
	}
	if ok {
		c.unindex(tenant, &old)
	}
	c.index(tenant, e)
	for _, seq := range changes {
		c.set(binary.BigEndian.AppendUint64(historyKey(tenant, e.Kind, e.ID), seq), nil)
	}
	c.entities[string(entityKey(tenant, e.Kind, e.ID))] = struct{}{}
	return nil
}

// unindex takes out by what an entity was found.
func (c *Checkpoint) unindex(tenant uint32, e *Entity) {
	for _, t := range e.Terms {
		c.remove(termKey(tenant, e.Kind, t, e.ID))
	}
	if e.Expires != 0 {
		c.remove(expiryKey(e.Expires, tenant, e.Kind, e.ID))
	} else {
		c.remove(indexedKey(e.Kind, e.Indexed, tenant, e.ID))
	}
}

// index writes an entity and by what it is found.
func (c *Checkpoint) index(tenant uint32, e *Entity) {
	c.set(entityKey(tenant, e.Kind, e.ID), appendEntity(nil, e))
	for _, t := range e.Terms {
		c.set(termKey(tenant, e.Kind, t, e.ID), nil)
	}
	if e.Expires != 0 {
		c.set(expiryKey(e.Expires, tenant, e.Kind, e.ID), nil)
	} else {
		c.set(indexedKey(e.Kind, e.Indexed, tenant, e.ID), nil)
	}
}

// Reap takes out up to limit entities that have expired, before the checkpoint sets any. One that was changed since
// stays, and only its old expiry goes.
func (s *State) Reap(c *Checkpoint, now calendar.Micros, limit int) (reaped int, err error) {
	prefix := []byte{kindExpiry}
	err = s.scan(prefix, prefix, func(k, _ []byte) (bool, error) {
		if len(k) < 13 {
			return false, fmt.Errorf("expiry entry: %w", errValue)
		}
		at := calendar.Micros(binary.BigEndian.Uint64(k[1:]))
		if at > now || reaped == limit {
			return false, nil
		}
		of := append(key(kindEntity, binary.BigEndian.Uint32(k[9:])), k[13:]...)
		v, err := s.get(of)
		if err != nil {
			return false, err
		}
		if v != nil {
			e, err := readEntity("", "", v)
			if err != nil {
				return false, err
			}
			if e.Expires == at {
				c.remove(of)
			}
		}
		c.remove(append([]byte{}, k...))
		reaped++
		return true, nil
	})
	return reaped, err
}

// Reindexer gives entities the terms of this build's declarations that have those of another one, or none because the
// build that kept them did not know their kind. What a build knows does not change while it runs, so that one pass
// over the state is enough.
type Reindexer struct {
	kinds []*entity.Declaration // that are left to look at
	entry func(*entity.Entity) (entity.Entry, error)
	from  []byte // where to go on within the first of them
}

// NewReindexer begins a pass. Entities that entry does not know stay as they are.
func NewReindexer(kinds *entity.Kinds) *Reindexer {
	return &Reindexer{kinds: kinds.All(), entry: kinds.Entry}
}

// Reindex goes on with a pass, after the checkpoint has set all entities that changed; it looks at so many.
func (s *State) Reindex(c *Checkpoint, r *Reindexer, limit int) error {
	for len(r.kinds) > 0 && limit > 0 {
		d := r.kinds[0]
		prefix := append(append([]byte{kindIndexed}, d.Name...), 0)
		if r.from == nil {
			r.from = prefix
		}
		ended := true
		upToDate := indexedKey(d.Name, d.Version, 0, "")[:len(prefix)+1]
		err := s.scan(prefix, r.from, func(k, _ []byte) (bool, error) {
			if k[len(prefix)] == d.Version {
				r.from, ended = after(upToDate), false
				return false, nil
			}
			if limit--; limit < 0 {
				r.from, ended = append([]byte{}, k...), false
				return false, nil
			}
			return true, s.reindex(c, r, k)
		})
		if err != nil {
			return fmt.Errorf("index entities of kind %s: %w", d.Name, err)
		}
		if ended {
			r.kinds, r.from = r.kinds[1:], nil
		}
	}
	return nil
}

func (s *State) reindex(c *Checkpoint, r *Reindexer, k []byte) error {
	kind, _, tenant, id, err := readIndexed(k)
	if err != nil {
		return err
	}
	if _, set := c.entities[string(entityKey(tenant, kind, id))]; set {
		return nil
	}
	e, ok, err := s.Entity(tenant, kind, id)
	if err != nil || !ok {
		return err
	}
	entry, err := r.entry(&e.Entity)
	if err != nil || entry.Indexed == 0 || entry.Indexed == e.Indexed {
		return nil //nolint:nilerr // whoever asks for it meets the error; a checkpoint does without
	}
	c.unindex(tenant, &e)
	e.Indexed, e.Terms, e.Expires = entry.Indexed, entry.Terms, entry.Expires
	c.index(tenant, &e)
	return nil
}

// remove takes an entry out. A batch in memory cannot fail to.
func (c *Checkpoint) remove(key []byte) {
	if err := c.b.Delete(key, nil); err != nil {
		panic(fmt.Sprintf("state: batch refuses to take an entry out: %v", err))
	}
}
