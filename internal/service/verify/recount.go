package verify

import (
	"fmt"
	"hash/maphash"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/quota"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// recount is one tenant under examination.
type recount struct {
	*run
	id   string
	v    store.View
	head ledger.Head

	// What the first pass gathers.
	names       names
	identities  map[identity]struct{}
	corrections map[factID]*corrections
	correctedBy map[usage.Key][]uint64
	entities    entities
	quotas      quotas
	alerts      alerts
	bygone      bygone
	work        uint64 // rows that would be decoded to look every row up: a lookup may decode the whole section

	// What the second pass folds.
	counters map[usage.CounterID]*tally
	members  map[identity]seen
	hours    hours
}

// factID is one fact in one meter.
type factID struct {
	key   usage.Key
	meter uint32
}

// corrections is what the corrections of one fact add up to, in each of the three folds.
type corrections struct {
	all, onTime, sealed change
	first               uint64 // row of the first one
	month               calendar.Month
	met                 bool // the fact was there
}

type change struct {
	times int
	sum   amount.Amount
}

// names hashes what would be too long to keep for each row. The seeds are drawn anew for each run, so nobody can
// prepare two names that meet; by chance two of a billion do once in 10^20 runs.
type names struct{ seeds [2]maphash.Seed }

type identity [2]uint64

func (n *names) of(space byte, parts ...string) (out identity) {
	for i, seed := range n.seeds {
		var h maphash.Hash
		h.SetSeed(seed)
		_ = h.WriteByte(space) // never fails
		for _, p := range parts {
			_, _ = h.WriteString(p) // never fails
			_ = h.WriteByte(0)      // no part contains it
		}
		out[i] = h.Sum64()
	}
	return out
}

func newRecount(r *run, id string, v store.View) (*recount, error) {
	plans, err := store.List(v, &quota.PlanKind, store.Page{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list plans: %w", err)
	}
	return &recount{
		run: r, id: id, v: v, head: v.Head(),
		names:       names{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}},
		identities:  map[identity]struct{}{},
		corrections: map[factID]*corrections{},
		correctedBy: map[usage.Key][]uint64{},
		entities:    newEntities(),
		quotas:      newQuotas(),
		alerts:      newAlerts(len(plans) > 0),
		bygone:      newBygone(v),
		counters:    map[usage.CounterID]*tally{},
		members:     map[identity]seen{},
		hours:       hours{},
	}, nil
}

func (b *recount) differs(what string, want, got any) {
	b.run.differs(Difference{Tenant: b.id, What: what, Want: fmt.Sprint(want), Got: fmt.Sprint(got)})
}

// examine is the whole examination of one tenant.
func (b *recount) examine() error {
	if err := b.gather(); err != nil {
		return err
	}
	if err := b.fold(); err != nil {
		return err
	}
	for _, compare := range []func() error{b.compareEntities, b.compareManual, b.compareMonths, b.compareCounters,
		b.compareTallies, b.compareHours} {
		if err := compare(); err != nil {
			return err
		}
	}
	b.report.Rows += b.head.Seq
	return nil
}

// gather is the first pass.
func (b *recount) gather() error {
	var hasher ledger.Hasher
	keys, err := b.treeKeys()
	if err != nil {
		return err
	}
	whole := tree.NewCheck(b.v.Tree(), func(want tree.Tile, got tree.Hash) {
		first, last := want.Rows()
		b.differs(fmt.Sprintf("hash of rows %d to %d", first, last), fmt.Sprintf("%x", want.Hash),
			fmt.Sprintf("%x", got))
	})
	next, clock := uint64(1), calendar.Micros(0)
	err = b.v.PrunedSections(1, func(s *ledger.Section) error {
		b.checkSection(s, next, clock)
		next, clock = s.First+uint64(s.Count()), max(clock, s.At)
		if err := hasher.Check(whole, keys, s); err != nil {
			return err
		}
		b.work += uint64(len(s.Rows)) * uint64(len(s.Rows))
		for i := range s.Rows {
			if err := b.note(&s.Rows[i]); err != nil {
				return err
			}
			if err := b.followAlerts(&s.Rows[i]); err != nil {
				return err
			}
		}
		b.endSection()
		return b.read(len(s.Rows))
	})
	if err != nil {
		return err
	}
	b.settleBygone()
	if next != b.head.Seq+1 {
		b.differs("number of the last row", next-1, b.head.Seq)
	}
	if clock != b.head.Clock {
		b.differs("clock", clock, b.head.Clock)
	}
	got, err := whole.Tree()
	if err != nil {
		return err
	}
	if got != b.head.Tree {
		b.differs("root of the tree", fmt.Sprintf("%x", got.Root()), fmt.Sprintf("%x", b.head.Tree.Root()))
	}
	return nil
}

func (b *recount) treeKeys() (*tree.Keys, error) {
	t, err := store.Tenant(b.v)
	if err != nil {
		return nil, fmt.Errorf("read tenant: %w", err)
	}
	return tree.NewKeys(t.TreeKeys)
}

// checkSection wants the next rows, one time for all of them, and no step back in time.
func (b *recount) checkSection(s *ledger.Section, next uint64, clock calendar.Micros) {
	if s.First != next {
		b.differs("first row of a section", next, s.First)
	}
	if s.Count() == 0 {
		b.differs(fmt.Sprintf("section from row %d on", s.First), "rows", "none")
	}
	if s.At < clock {
		b.differs(fmt.Sprintf("time of the section from row %d on", s.First), fmt.Sprintf("%s or later", clock), s.At)
	}
	b.checkGone(s)
	for i := range s.Rows {
		r := &s.Rows[i]
		if want := s.First + uint64(i); r.Seq != want && s.Gone == 0 {
			b.differs(fmt.Sprintf("number of row %d", want), want, r.Seq)
		}
		if r.At != s.At {
			b.differs(fmt.Sprintf("time of row %d", r.Seq), s.At, r.At)
		}
	}
}

// note takes from a row what folding must know beforehand.
func (b *recount) note(r *ledger.Row) error {
	switch r.Kind() {
	case ledger.ChangeRow:
		return b.noteChange(r)
	case ledger.EntryRow:
		return nil
	case ledger.EventRow:
		return b.noteEvent(r)
	}
	return nil
}

func (b *recount) noteEvent(r *ledger.Row) error {
	b.met(r.Seq)
	who := b.names.of(byte(r.Event.Key.Space), r.Event.Key.Name)
	if _, twice := b.identities[who]; twice {
		b.differs("event "+r.Event.Key.ID(), "one row", fmt.Sprintf("another one, row %d", r.Seq))
	}
	b.identities[who] = struct{}{}
	for i := range r.Event.Outcomes {
		b.entities.used[r.Event.Outcomes[i].Meter] = true
	}
	if r.Event.IsCorrection() {
		return b.noteCorrection(r)
	}
	return nil
}

func (b *recount) noteCorrection(r *ledger.Row) error {
	target := clone(usage.KeyOfID(r.Event.Corrects))
	b.correctedBy[target] = append(b.correctedBy[target], r.Seq)
	closed := b.entities.periods[r.Event.Month()].Closed
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		id := factID{target, o.Meter}
		c := b.corrections[id]
		if c == nil {
			c = &corrections{first: r.Seq, month: r.Event.Month()}
			b.corrections[id] = c
		}
		folds := []*change{&c.all}
		if o.Why == usage.OnTime {
			folds = append(folds, &c.onTime)
		}
		if !closed {
			folds = append(folds, &c.sealed)
		}
		for _, f := range folds {
			sum, err := add(f.sum, o.Value)
			if err != nil {
				return fmt.Errorf("corrections of %s: %w", target.ID(), err)
			}
			f.times, f.sum = f.times+1, sum
		}
	}
	return nil
}

func add(a, c amount.Amount) (amount.Amount, error) {
	sum, ok := a.Add(c)
	if !ok {
		return sum, fmt.Errorf("%s and %s make more than an amount can hold", a, c)
	}
	return sum, nil
}
