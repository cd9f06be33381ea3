package engine

import (
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine/state"
)

// Entities of resident kinds are in the book's resident set. All others are in the state, and what changed since the
// last checkpoint in the notes; nothing of them is loaded at start. A reader takes what it needs of the notes first and
// reads the state then, without the lock: what a checkpoint moves meanwhile is seen twice, not missed.

// noted is an entity in the notes. It is never changed: a change makes another one.
type noted struct {
	state.Entity
	changes []uint64 // rows that changed it since the last checkpoint; not those of one that expires
}

// kindOf names a kind of a book's entities.
type kindOf struct {
	book *book
	kind string
}

// criticalKind is a critical kind in one version.
type criticalKind struct {
	kind    string
	version uint8
}

// noteEntity takes a change of an entity into the notes, and its memory with it. Engine.mu is held.
func (e *Engine) noteEntity(b *book, ent *entity.Entity, entry *entity.Entry) {
	n := e.notes[0]
	if k := (criticalKind{ent.Kind, ent.Version}); ent.Critical && !b.critical[k] {
		b.critical[k] = true
		n.critical[bookKind{b, k}] = ent.Seq
	}
	if !entry.Keep {
		return
	}
	of := kindOf{b, ent.Kind}
	if n.entities[of] == nil {
		n.entities[of] = map[string]*noted{}
	}
	next := &noted{Entity: state.Entity{
		Entity: *ent, Indexed: entry.Indexed, Terms: entry.Terms, Expires: entry.Expires,
	}}
	if before := n.entities[of][ent.ID]; before != nil {
		next.changes = before.changes
	}
	if entry.Expires == 0 {
		next.changes = append(next.changes, ent.Seq)
	}
	n.entities[of][ent.ID] = next
	n.changed++
	n.bytes += len(ent.Data)
}

// recentEntity finds an entity that changed since the last checkpoint, or nil. Engine.mu is held.
func (e *Engine) recentEntity(b *book, kind, id string) *noted {
	for _, n := range e.notes { // the newest first
		if found := n.entities[kindOf{b, kind}][id]; found != nil {
			return found
		}
	}
	return nil
}

// overlay is what the transaction has changed; nil if this is none.
func (v *view) overlay() *store.Overlay {
	if v.tx == nil {
		return nil
	}
	return v.tx.overlay
}

// Entity implements store.View.
func (v *view) Entity(kind, id string) (entity.Entity, error) {
	found, ok, err := v.findEntity(kind, id)
	switch {
	case err != nil:
		return entity.Entity{}, err
	case !ok:
		return entity.Entity{}, store.NoEntity(kind, id)
	}
	return found, nil
}

func (v *view) findEntity(kind, id string) (entity.Entity, bool, error) {
	if own, ok := v.overlay().Get(kind, id); ok {
		return own, true, nil
	}
	if v.e.options.Kinds.IsResident(kind) {
		found, ok := v.resident.Entity(kind, id)
		return found, ok, nil
	}
	var recent *noted
	err := v.remembered(func() { recent = v.e.recentEntity(v.b, kind, id) })
	if err != nil || recent != nil {
		return ownEntity(recent), err == nil, err
	}
	found, ok, err := v.from.Entity(v.b.number, kind, id)
	return found.Entity, ok, err
}

// remembered runs fn on the notes and waits until what it saw is durable. A snapshot has none.
func (v *view) remembered(fn func()) error {
	if v.frozen {
		return nil
	}
	return v.settled(func() error {
		fn()
		return nil
	})
}

// ownEntity gives a caller memory that it may do with as it likes.
func ownEntity(n *noted) entity.Entity {
	if n == nil {
		return entity.Entity{}
	}
	return n.Entity.Entity.Clone()
}

// EntityAt implements store.View. Rows of changes never leave.
func (v *view) EntityAt(kind, id string, seq uint64) (entity.Entity, error) {
	last, err := v.lastChange(kind, id, min(seq, v.head.Seq))
	if err != nil {
		return entity.Entity{}, err
	}
	if last == 0 {
		return entity.Entity{}, store.NoEntity(kind, id)
	}
	r, err := v.row(last)
	if err != nil {
		return entity.Entity{}, err
	}
	return r.Entity(), nil
}

// lastChange is the number of the last row up to seq that changed an entity, or 0.
func (v *view) lastChange(kind, id string, seq uint64) (last uint64, err error) {
	if v.tx != nil {
		if last := v.tx.lastChange(kind, id, seq); last != 0 {
			return last, nil
		}
	}
	err = v.remembered(func() {
		for _, n := range v.e.notes {
			found := n.entities[kindOf{v.b, kind}][id]
			if found == nil || last != 0 {
				continue
			}
			if i, same := slices.BinarySearch(found.changes, seq); same {
				last = seq
			} else if i > 0 {
				last = found.changes[i-1]
			}
		}
	})
	if err != nil || last != 0 {
		return last, err
	}
	return v.from.LastChange(v.b.number, kind, id, seq)
}

// lastChange is that of the transaction's own rows.
func (x *tx) lastChange(kind, id string, seq uint64) uint64 {
	for i := range slices.Backward(x.rows) {
		r := &x.rows[i]
		if s := &r.Change.State; r.Seq > seq || s.Kind != kind || s.ID != id {
			continue
		}
		e := r.Entity()
		if entry, err := x.e.options.Kinds.Entry(&e); err == nil && entry.Keep && entry.Expires == 0 {
			return r.Seq
		}
	}
	return 0
}

// Entities implements store.View.
func (v *view) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	if err := store.CheckPlace(kind, p.After); err != nil {
		return nil, err
	}
	return v.overlay().Page(kind, entity.Term{}, p, func(p store.Page) ([]entity.Entity, error) {
		if v.e.options.Kinds.IsResident(kind) {
			return v.resident.Page(kind, p), nil
		}
		return v.merged(kind, entity.Term{}, p, func(skip func(string) bool) ([]entity.Entity, error) {
			return v.from.Entities(v.b.number, kind, p, skip)
		})
	})
}

// EntitiesBy implements store.View.
func (v *view) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	if err := store.CheckPlace(kind, t.Index, t.Value, p.After); err != nil {
		return nil, err
	}
	d := v.e.options.Kinds.Find(kind)
	if d == nil || t.Index == "" {
		return nil, nil // what this build does not know has no terms
	}
	q := state.Search{Kind: kind, Term: t, Version: d.Version, Wants: func(e *entity.Entity) (bool, error) {
		entry, err := v.e.options.Kinds.Entry(e)
		return slices.Contains(entry.Terms, t), err
	}}
	return v.overlay().Page(kind, t, p, func(p store.Page) ([]entity.Entity, error) {
		return v.merged(kind, t, p, func(skip func(string) bool) ([]entity.Entity, error) {
			q.Skip = skip
			return v.from.EntitiesBy(v.b.number, &q, p)
		})
	})
}

// merged adds what is in the notes to what read returns of the state; read leaves out what is in the notes. A term of
// which the index is empty takes all.
func (v *view) merged(
	kind string, t entity.Term, p store.Page, read func(skip func(id string) bool) ([]entity.Entity, error),
) ([]entity.Entity, error) {
	recent := map[string]*noted{}
	err := v.remembered(func() {
		for _, n := range slices.Backward(v.e.notes[:]) { // the newest last
			maps.Copy(recent, n.entities[kindOf{v.b, kind}])
		}
	})
	if err != nil {
		return nil, err
	}
	page, err := read(func(id string) bool { return recent[id] != nil })
	if err != nil {
		return nil, err
	}
	for id, n := range recent {
		if p.Holds(id) && (t.Index == "" || slices.Contains(n.Terms, t)) {
			page = append(page, n.Entity.Entity)
		}
	}
	page = p.Cut(page)
	for i := range page {
		if n := recent[page[i].ID]; n != nil {
			page[i] = ownEntity(n)
		}
	}
	return page, nil
}

// MeterUsed implements store.View.
func (v *view) MeterUsed(number uint32) (used bool, err error) {
	if v.frozen {
		return v.from.Used(v.b.number, number)
	}
	err = v.settled(func() error {
		used = v.b.used[number]
		return nil
	})
	return used, err
}
