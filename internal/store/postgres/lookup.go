package postgres

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/store"
)

// Entities of resident kinds are served from the set. All others are read here, by id or by a term. Terms that are of
// an older declaration than this build's are not asked: the entities that have them are read from an index of their
// own, and their terms are worked out anew.

var (
	entitiesByID = &statement{name: "entities_by_id", sql: `SELECT e.* FROM unnest($3::text[]) AS k(id)
		CROSS JOIN LATERAL (SELECT ` + entityColumns + ` FROM entities
			WHERE tenant_id = $1 AND kind = $2 AND id = k.id LIMIT 1) e`}
	entityAt = &statement{name: "entity_at", choosy: true, sql: "SELECT " + entityColumns + ` FROM changes
		WHERE tenant_id = $1 AND kind = $2 AND id = $3 AND seq <= $4 AND kind IS NOT NULL ORDER BY seq DESC LIMIT 1`}
	entitiesUp   = entityPage("entities_up", "> $3 ORDER BY id")
	entitiesDown = entityPage("entities_down", "< $3 ORDER BY id DESC")
	byTermUp     = termPage("by_term_up", "> $3 ORDER BY t.id")
	byTermDown   = termPage("by_term_down", "< $3 ORDER BY t.id DESC")
	staleUp      = stalePage("stale_up", "> $3 ORDER BY id")
	staleDown    = stalePage("stale_down", "< $3 ORDER BY id DESC")
)

func entityPage(name, beyond string) *statement {
	return &statement{name: name, choosy: true, sql: "SELECT " + entityColumns + ` FROM entities
		WHERE tenant_id = $1 AND kind = $2 AND id ` + beyond + " LIMIT $4"}
}

func termPage(name, beyond string) *statement {
	return &statement{name: name, choosy: true, sql: `SELECT e.* FROM entity_terms t
		CROSS JOIN LATERAL (SELECT ` + entityColumns + ` FROM entities
			WHERE tenant_id = $1 AND kind = $2 AND id = t.id AND indexed >= $7 LIMIT 1) e
		WHERE t.tenant_id = $1 AND t.kind = $2 AND t.index_name = $5 AND t.value = $6 AND t.id ` + beyond + " LIMIT $4"}
}

// stalePage reads one range of the index for each version below that of the declaration.
func stalePage(name, beyond string) *statement {
	return &statement{name: name, choosy: true, sql: `SELECT e.* FROM generate_series(0, $5::integer - 1) AS v(version)
		CROSS JOIN LATERAL (SELECT ` + entityColumns + ` FROM entities
			WHERE tenant_id = $1 AND kind = $2 AND indexed = v.version::smallint AND expires_at IS NULL
				AND id ` + beyond + ` LIMIT $4) e
		ORDER BY ` + strings.Replace(beyond[strings.Index(beyond, "id"):], "id", "e.id", 1) + " LIMIT $4"}
}

// pageStale is how many stale entities are looked at at a time.
const pageStale = 500

// beyondIDs is above every id, which are no longer than entity.MaxID.
var beyondIDs = strings.Repeat("\U0010FFFF", entity.MaxID/len("\U0010FFFF")+1)

// overlay is what the transaction has changed; nil if this is none.
func (v *view) overlay() *store.Overlay {
	if v.tx == nil {
		return nil
	}
	return v.tx.overlay
}

// Entity implements store.View.
func (v *view) Entity(kind, id string) (entity.Entity, error) {
	if v.set.kinds.IsResident(kind) {
		e, found := v.set.Entity(kind, id)
		if !found {
			return e, store.NoEntity(kind, id)
		}
		return e, nil
	}
	if e, changed := v.overlay().Get(kind, id); changed {
		return e, nil
	}
	if !clean(kind) || !clean(id) {
		return entity.Entity{}, store.NoEntity(kind, id)
	}
	return v.one(kind, id, entitiesByID, []byte(kind), textsParam([]string{id}))
}

// one reads an entity.
func (v *view) one(kind, id string, st *statement, params ...[]byte) (e entity.Entity, err error) {
	err = v.ask(st, func(in *reader) error {
		e = readEntity(in)
		return nil
	}, params...)
	if err == nil && e.IsZero() {
		err = store.NoEntity(kind, id)
	}
	return e, err
}

// EntityAt implements store.View.
func (v *view) EntityAt(kind, id string, seq uint64) (entity.Entity, error) {
	e, err := v.stateAt(kind, id, seq)
	if err != nil {
		return e, err
	}
	entry, err := v.set.kinds.Entry(&e)
	if err == nil && (!entry.Keep || entry.Expires != 0) {
		err = store.NoEntity(kind, id) // what may be forgotten, or is never kept, has no past that can be relied on
	}
	return e, err
}

func (v *view) stateAt(kind, id string, seq uint64) (entity.Entity, error) {
	if v.tx != nil {
		for _, r := range slices.Backward(v.tx.rows) {
			if s := &r.Change.State; r.Seq <= seq && s.Kind == kind && s.ID == id {
				return r.Entity().Clone(), nil
			}
		}
	}
	if kind == "" || !clean(kind) || !clean(id) {
		return entity.Entity{}, store.NoEntity(kind, id)
	}
	upTo := int8Param(int64(min(seq, v.head.Seq)))
	return v.one(kind, id, entityAt, []byte(kind), []byte(id), upTo)
}

// Entities implements store.View.
func (v *view) Entities(kind string, p store.Page) ([]entity.Entity, error) {
	if err := store.CheckPlace(p.After); err != nil || !clean(kind) {
		return nil, err // nothing is of a kind that is called so
	}
	if v.set.kinds.IsResident(kind) {
		return v.set.Page(kind, p), nil
	}
	return v.overlay().Page(kind, entity.Term{}, p, func(p store.Page) ([]entity.Entity, error) {
		return v.list(direction(p, entitiesUp, entitiesDown), kind, p)
	})
}

// EntitiesBy implements store.View.
func (v *view) EntitiesBy(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	if err := store.CheckPlace(p.After); err != nil || t.Index == "" {
		return nil, err
	}
	if !clean(kind) || !clean(t.Index) || !clean(t.Value) {
		return nil, nil // nothing is called so
	}
	return v.overlay().Page(kind, t, p, func(p store.Page) ([]entity.Entity, error) { return v.byTerm(kind, t, p) })
}

func direction(p store.Page, up, down *statement) *statement {
	if p.Backward {
		return down
	}
	return up
}

// list reads a page of entities. The statement's first parameters are the tenant, the kind, the place and the limit.
func (v *view) list(st *statement, kind string, p store.Page, more ...[]byte) (out []entity.Entity, err error) {
	if p.Limit <= 0 {
		return nil, nil
	}
	after := p.After
	if p.Backward && after == "" {
		after = beyondIDs
	}
	err = v.ask(st, func(in *reader) error {
		out = append(out, readEntity(in))
		return nil
	}, append([][]byte{[]byte(kind), []byte(after), int8Param(int64(p.Limit))}, more...)...)
	return out, err
}

func (v *view) byTerm(kind string, t entity.Term, p store.Page) ([]entity.Entity, error) {
	var version uint8
	if d := v.set.kinds.Find(kind); d != nil {
		version = d.Version
	}
	page, err := v.list(direction(p, byTermUp, byTermDown), kind, p,
		[]byte(t.Index), []byte(t.Value), int2Param(int16(version)))
	if err != nil || version == 0 {
		return page, err
	}
	stale, err := v.staleByTerm(kind, version, t, p)
	if err != nil || len(stale) == 0 {
		return page, err
	}
	return p.Cut(append(page, stale...)), nil
}

// staleByTerm lists entities whose stored terms are of an older declaration and that have the term by this build's.
// There are none unless a newer build has just taken over.
func (v *view) staleByTerm(kind string, version uint8, t entity.Term, p store.Page) (out []entity.Entity, err error) {
	for next := (store.Page{After: p.After, Limit: pageStale, Backward: p.Backward}); ; {
		some, err := v.list(direction(p, staleUp, staleDown), kind, next, int4Param(int32(version)))
		if err != nil {
			return nil, err
		}
		for i := range some {
			entry, err := v.set.kinds.Entry(&some[i])
			if err != nil {
				return nil, err
			}
			if v.tx != nil {
				v.tx.refresh(keptEntity{some[i], entry})
			}
			if slices.Contains(entry.Terms, t) {
				out = append(out, some[i])
			}
		}
		if len(some) < pageStale || len(out) >= p.Limit {
			return out, nil
		}
		next.After = some[len(some)-1].ID
	}
}
