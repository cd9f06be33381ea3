package store

import (
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Overlay is the entities that a transaction has changed and that its store does not have yet. Reads of the
// transaction go through it. It is not safe for concurrent use.
type Overlay struct {
	kinds  *entity.Kinds
	byKind map[string]map[string]overlaid
}

type overlaid struct {
	entity.Entity
	terms []entity.Term
}

// NewOverlay is empty.
func NewOverlay(k *entity.Kinds) *Overlay {
	return &Overlay{kinds: k, byKind: map[string]map[string]overlaid{}}
}

// Put takes a change in. Errors are those of entity.Kinds.Entry.
func (o *Overlay) Put(e entity.Entity) error {
	entry, err := o.kinds.Entry(&e)
	if err != nil || !entry.Keep {
		return err
	}
	if o.byKind[e.Kind] == nil {
		o.byKind[e.Kind] = map[string]overlaid{}
	}
	o.byKind[e.Kind][e.ID] = overlaid{e, entry.Terms}
	return nil
}

// Get returns an entity that the transaction has changed, with memory of its own. Nil has changed nothing.
func (o *Overlay) Get(kind, id string) (entity.Entity, bool) {
	if o == nil {
		return entity.Entity{}, false
	}
	e, ok := o.byKind[kind][id]
	return e.Clone(), ok
}

// Page lists entities of a kind: what read returns of the store, with what the transaction has changed. A term of
// which the index is empty takes all. Nil has changed nothing.
func (o *Overlay) Page(
	kind string, t entity.Term, p Page, read func(Page) ([]entity.Entity, error),
) ([]entity.Entity, error) {
	if o == nil || len(o.byKind[kind]) == 0 {
		return read(p)
	}
	mine := o.byKind[kind]
	// So many of the store's may be replaced by the transaction's own, and enough are left.
	more := p
	more.Limit += len(mine)
	page, err := read(more)
	if err != nil {
		return nil, err
	}
	page = slices.DeleteFunc(page, func(e entity.Entity) bool {
		_, changed := mine[e.ID]
		return changed
	})
	for id, e := range mine {
		if p.Holds(id) && (t.Index == "" || slices.Contains(e.terms, t)) {
			page = append(page, e.Clone())
		}
	}
	return p.Cut(page), nil
}

// Holds reports whether an id lies behind the place that the page goes on from.
func (p Page) Holds(id string) bool {
	if p.Backward {
		return p.After == "" || id < p.After
	}
	return id > p.After
}

// Cut sorts entities in the page's order and leaves as many as it wants.
func (p Page) Cut(list []entity.Entity) []entity.Entity {
	slices.SortFunc(list, func(a, b entity.Entity) int {
		if p.Backward {
			a, b = b, a
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list[:min(max(p.Limit, 0), len(list))]
}

// NoEntity says that there is none. Errors: NotFound.
func NoEntity(kind, id string) error {
	what := strings.ReplaceAll(kind, "_", " ")
	if id == tenant.Self {
		return problem.New(problem.NotFound, "no such %s", what)
	}
	return problem.New(problem.NotFound, "no %s %q", what, id)
}
