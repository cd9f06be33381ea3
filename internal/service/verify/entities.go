package verify

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/kinds"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// entities is what the change rows leave behind: of every kind what a store must show, and decoded what folding needs.
type entities struct {
	kinds  *entity.Kinds
	latest map[string]map[string]state // by kind and id

	meters   map[string]meter.Meter
	numbers  map[uint32]meter.Meter
	used     map[uint32]bool
	periods  map[calendar.Month]usage.Period
	manual   []usage.Adjustment
	reverted map[string]string // adjustment → the one that undid it
}

// state is an entity as its last change left it, without its data, which would be too long to keep.
type state struct {
	sum     [sha256.Size]byte
	seq     uint64
	at      calendar.Micros
	expires calendar.Micros
	terms   []entity.Term
}

func newEntities() entities {
	return entities{
		kinds: kinds.All(), latest: map[string]map[string]state{},
		meters: map[string]meter.Meter{}, numbers: map[uint32]meter.Meter{}, used: map[uint32]bool{},
		periods: map[calendar.Month]usage.Period{}, reverted: map[string]string{},
	}
}

func sumOf(e *entity.Entity) [sha256.Size]byte {
	critical := byte(0)
	if e.Critical {
		critical = 1
	}
	return sha256.Sum256(bytes.Join([][]byte{{e.Version, critical}, e.Data}, nil))
}

// noteChange takes a change row in.
func (b *recount) noteChange(r *ledger.Row) error {
	e := r.Entity()
	if e.IsZero() {
		return nil
	}
	entry, err := b.entities.kinds.Entry(&e)
	if err != nil {
		return err
	}
	if entry.Keep {
		of := b.entities.latest[e.Kind]
		if of == nil {
			of = map[string]state{}
			b.entities.latest[e.Kind] = of
		}
		of[e.ID] = state{sumOf(&e), e.Seq, e.At, entry.Expires, entry.Terms}
	}
	if err := b.noteBygone(&e); err != nil {
		return err
	}
	if err := b.quotas.note(&e); err != nil {
		return err
	}
	return b.entities.note(&e)
}

// note decodes what folding needs.
func (n *entities) note(e *entity.Entity) error {
	m, err := meter.Kind.ReadIf(e)
	if err != nil {
		return err
	}
	if m != nil {
		n.meters[m.Slug], n.numbers[m.Number] = *m, *m
	}
	p, err := usage.PeriodKind.ReadIf(e)
	if err != nil {
		return err
	}
	if p != nil {
		n.periods[p.Month] = *p
	}
	a, err := usage.AdjustmentKind.ReadIf(e)
	if err != nil || a == nil {
		return err
	}
	n.manual = append(n.manual, *a)
	if a.Reverts != "" {
		n.reverted[a.Reverts] = a.ID
	}
	return nil
}

// compareEntities holds the entities of every kind against the changes that made them, and the lists by their terms.
func (b *recount) compareEntities() error {
	names := map[string]bool{}
	for _, d := range b.entities.kinds.All() {
		names[d.Name] = true
	}
	for kind := range b.entities.latest {
		names[kind] = true
	}
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		if err := b.compareKind(kind); err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
	}
	return b.compareUse()
}

func (b *recount) compareKind(kind string) error {
	want := b.entities.latest[kind]
	met := map[string]bool{}
	list := func(p store.Page) ([]entity.Entity, error) { return b.v.Entities(kind, p) }
	err := eachEntity(list, func(e *entity.Entity) {
		met[e.ID] = true
		w, there := want[e.ID]
		switch {
		case !there:
			b.differs(nameOf(kind, e.ID), "none", "one")
		case w.sum != sumOf(e) || w.seq != e.Seq || w.at != e.At:
			b.differs(nameOf(kind, e.ID), "what its last change says", "something else")
		}
	})
	if err != nil {
		return err
	}
	byTerm := map[entity.Term][]string{}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if !met[id] && (want[id].expires == 0 || want[id].expires > b.v.Now()) {
			b.differs(nameOf(kind, id), "one", "none")
		}
		for _, t := range want[id].terms {
			byTerm[t] = append(byTerm[t], id)
		}
	}
	for t, ids := range byTerm {
		if err := b.compareTerm(kind, t, ids); err != nil {
			return err
		}
	}
	return nil
}

func (b *recount) compareTerm(kind string, t entity.Term, want []string) error {
	var got []string
	list := func(p store.Page) ([]entity.Entity, error) { return b.v.EntitiesBy(kind, t, p) }
	if err := eachEntity(list, func(e *entity.Entity) { got = append(got, e.ID) }); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		b.differs(fmt.Sprintf("list of %s with %s=%s", kind, t.Index, t.Value), fmt.Sprintf("%d of them", len(want)),
			fmt.Sprintf("%d", len(got)))
	}
	return nil
}

// nameOf never shows more of an entity than its name: states hold salts and hashes.
func nameOf(kind, id string) string {
	if id == tenant.Self {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, id)
}

// entitiesPage is how many entities are listed at a time.
const entitiesPage = 1000

// eachEntity reads a list to its end.
func eachEntity(list func(store.Page) ([]entity.Entity, error), fn func(*entity.Entity)) error {
	for after := ""; ; {
		page, err := list(store.Page{After: after, Limit: entitiesPage})
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if page[i].ID <= after {
				return fmt.Errorf("%q is listed after %q", page[i].ID, after)
			}
			after = page[i].ID
			fn(&page[i])
		}
	}
}

// compareUse holds which meters have events against the rows.
func (b *recount) compareUse() error {
	for number, m := range b.entities.numbers {
		used, err := b.v.MeterUsed(number)
		if err != nil {
			return fmt.Errorf("read the use of meter %s: %w", m.Slug, err)
		}
		if want := b.entities.used[number]; want != used {
			b.differs("use of meter "+m.Slug, want, used)
		}
	}
	return nil
}

// compareMonths holds the list of months against the counters.
func (b *recount) compareMonths() error {
	want := map[calendar.Month]bool{}
	for id := range b.counters {
		want[id.Month] = true
	}
	for from := calendar.Month(0); ; {
		page, err := b.v.Months(from, entitiesPage)
		if err != nil {
			return fmt.Errorf("list months: %w", err)
		}
		for _, m := range page {
			if m < from {
				return fmt.Errorf("list months: %s is listed when only later ones were asked for", m)
			}
			from = m + 1
			if !want[m] {
				b.differs("month "+m.String(), "no counters", "listed")
			}
			delete(want, m)
		}
		if len(page) == 0 {
			break
		}
	}
	for m := range want {
		b.differs("month "+m.String(), "listed", "not listed")
	}
	return nil
}

// compareManual finds every person's adjustment again by its id.
func (b *recount) compareManual() error {
	for i := range b.entities.manual {
		want := b.entities.manual[i]
		want.Reverted = b.entities.reverted[want.ID]
		got, err := store.Adjustment(b.v, want.ID)
		if problem.Is(err, problem.NotFound) {
			b.differs("adjustment "+want.ID, fmt.Sprintf("row %d", want.Seq), "none")
			continue
		}
		if err != nil {
			return fmt.Errorf("read adjustment %s: %w", want.ID, err)
		}
		if got != want {
			b.differs("adjustment "+want.ID, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
		}
	}
	return nil
}
