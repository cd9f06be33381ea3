package verify

import (
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// tally is a counter as the rows give it.
type tally struct {
	onTime usage.Fold
	// all is the fold of every row, nil while it is the same as onTime; sealed is that of the rows up to the close of
	// the period, nil while it is the same as all. Most counters need one fold only.
	all, sealed    *usage.Fold
	started        bool
	watermark      calendar.Micros
	manual         amount.Amount
	manualAtClose  amount.Amount
	movedSinceThen amount.Amount  // what the rows after the close say they changed
	base           *usage.Counter // of a month that has left: what the ledger says that its rows added up to
	listed         bool           // the store showed it
}

func (t *tally) allRows() *usage.Fold {
	if t.all != nil {
		return t.all
	}
	return &t.onTime
}

func (t *tally) atClose() *usage.Fold {
	if t.sealed != nil {
		return t.sealed
	}
	return t.allRows()
}

// seen says in which folds of a counter a member of a unique meter stands already.
type seen uint8

const (
	seenOnTime seen = 1 << iota
	seenAll
	seenSealed
)

// part is what one fact brings to one fold.
type part struct {
	counts   bool
	quantity amount.Amount
}

func (b *recount) tally(id usage.CounterID) *tally {
	t := b.counters[id]
	if t == nil {
		t = &tally{}
		id.Customer = strings.Clone(id.Customer)
		b.counters[id] = t
	}
	return t
}

// fold is the second pass.
func (b *recount) fold() error {
	look := newLookups(b)
	err := b.v.PrunedSections(1, func(s *ledger.Section) error {
		for i := range s.Rows {
			r := &s.Rows[i]
			if r.Kind() != ledger.EventRow {
				continue
			}
			if !b.bygone.left[r.Event.Month()] {
				if err := b.foldRow(r); err != nil {
					return fmt.Errorf("row %d: %w", r.Seq, err)
				}
			}
			if err := look.maybe(r); err != nil {
				return err
			}
		}
		return b.read(len(s.Rows))
	})
	if err != nil {
		return err
	}
	for id, c := range b.corrections {
		if !c.met && !b.bygone.left[c.month] {
			b.differs(fmt.Sprintf("target %s of the correction in row %d", id.key.ID(), c.first), "a fact", "none")
		}
	}
	b.foldBases()
	return b.foldManual()
}

func (b *recount) foldRow(r *ledger.Row) error {
	month := r.Event.Month()
	period := b.entities.periods[month]
	late := period.Closed && r.Seq > period.Seq
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		id := usage.CounterID{Meter: o.Meter, Customer: r.Event.Customer, Month: month}
		t := b.tally(id)
		if late {
			moved, err := add(t.movedSinceThen, o.Amount)
			if err != nil {
				return err
			}
			t.movedSinceThen = moved
		}
		if r.Event.IsCorrection() {
			continue
		}
		if err := b.foldFact(t, id, r, o, period.Closed && !late); err != nil {
			return err
		}
	}
	return nil
}

// foldFact adds a fact to the folds that it counts in. beforeClose is false in an open period, where there is nothing
// to seal.
func (b *recount) foldFact(t *tally, id usage.CounterID, r *ledger.Row, o *usage.Outcome, beforeClose bool) error {
	c := b.corrections[factID{r.Event.Key, o.Meter}]
	if c == nil {
		c = &corrections{}
	} else if c.met = true; c.first < r.Seq {
		b.differs(fmt.Sprintf("target %s of the correction in row %d", r.Event.Key.ID(), c.first), "a fact before it",
			fmt.Sprintf("row %d", r.Seq))
	}
	inTime := o.Why == usage.OnTime
	all, err := left(true, o.Value, c.all)
	if err != nil {
		return err
	}
	onTime, err := left(inTime, o.Value, c.onTime)
	if err != nil {
		return err
	}
	sealed, err := left(beforeClose, o.Value, c.sealed)
	if err != nil {
		return err
	}
	b.foldHours(o, r.Event, all)
	if t.sealed == nil && b.entities.periods[id.Month].Closed && sealed != all {
		t.sealed = copyOf(t.allRows())
	}
	if t.all == nil && all != onTime {
		t.all = copyOf(&t.onTime)
	}
	if inTime {
		t.started, t.watermark = true, max(t.watermark, r.Event.Time)
	}
	before := b.member(id, o.Member, onTime, all, sealed)
	for _, f := range [...]struct {
		fold *usage.Fold
		part part
		seen bool
	}{{&t.onTime, onTime, before&seenOnTime != 0}, {t.all, all, before&seenAll != 0},
		{t.sealed, sealed, before&seenSealed != 0}} {
		if f.fold == nil || !f.part.counts {
			continue
		}
		if err := fold(f.fold, f.part.quantity, r.Event); err != nil {
			return err
		}
		if o.Member != "" && !f.seen {
			f.fold.Members++
		}
	}
	return nil
}

// left is a fact's quantity with its corrections. A corrected fact counts while it is above zero.
func left(in bool, value amount.Amount, c change) (part, error) {
	if !in {
		return part{}, nil
	}
	q, err := add(value, c.sum)
	if err != nil || c.times > 0 && q.Sign() <= 0 {
		return part{}, err
	}
	return part{true, q}, nil
}

// member notes a unique meter's member and returns where it stood before.
func (b *recount) member(id usage.CounterID, name string, onTime, all, sealed part) seen {
	if name == "" {
		return 0
	}
	who := b.names.of('m', id.Month.String(), fmt.Sprint(id.Meter), id.Customer, name)
	before := b.members[who]
	after := before
	if onTime.counts {
		after |= seenOnTime
	}
	if all.counts {
		after |= seenAll
	}
	if sealed.counts {
		after |= seenSealed
	}
	if after != before {
		b.members[who] = after
	}
	return before
}

// fold adds one quantity. It is written down here once more, on purpose: a proof by the code under test proves nothing.
func fold(f *usage.Fold, q amount.Amount, e *usage.Row) error {
	sum, err := add(f.Sum, q)
	if err != nil {
		return err
	}
	f.Sum = sum
	f.Count++
	if f.Count == 1 || q.Cmp(f.Min) < 0 {
		f.Min, f.AtMin = q, 0
	}
	if f.Count == 1 || q.Cmp(f.Max) > 0 {
		f.Max, f.AtMax = q, 0
	}
	if q.Cmp(f.Min) == 0 {
		f.AtMin++
	}
	if q.Cmp(f.Max) == 0 {
		f.AtMax++
	}
	if f.Count == 1 || e.Time > f.LastTime || e.Time == f.LastTime && comesAfter(e.Key, f.LastKey) {
		f.Last, f.LastTime = q, e.Time
		f.LastKey = append(append(f.LastKey[:0], byte(e.Key.Space)), e.Key.Name...)
	}
	return nil
}

// comesAfter orders keys by space, then name: the space is the first byte of what a fold keeps.
func comesAfter(k usage.Key, last []byte) bool {
	return string(rune(k.Space))+k.Name > string(last)
}

func copyOf(f *usage.Fold) *usage.Fold {
	c := *f
	c.LastKey = append([]byte(nil), f.LastKey...)
	return &c
}

// foldManual adds what people added.
func (b *recount) foldManual() error {
	for i := range b.entities.manual {
		a := &b.entities.manual[i]
		id := usage.CounterID{Meter: a.Meter, Customer: a.Customer, Month: a.Month}
		if b.inBase(id, a.Seq) {
			continue
		}
		t := b.tally(id)
		sums := []*amount.Amount{&t.manual}
		if p := b.entities.periods[a.Month]; p.Closed && a.Seq > p.Seq {
			sums = append(sums, &t.movedSinceThen)
		} else {
			sums = append(sums, &t.manualAtClose)
		}
		for _, s := range sums {
			sum, err := add(*s, a.Amount)
			if err != nil {
				return fmt.Errorf("adjustment %s: %w", a.ID, err)
			}
			*s = sum
		}
	}
	return nil
}

func clone(k usage.Key) usage.Key {
	k.Name = strings.Clone(k.Name)
	return k
}
