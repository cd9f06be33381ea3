package retention

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// baseBytes is about how long one row of a base gets: small beside a commit.
const baseBytes = 32 << 10

// recordBase records the counters of a month in the ledger, some in each row. Each row is absolute where it stands, so
// rows of a run that broke off do no harm, and neither does an adjustment that a person makes in between. A month that
// another node has archived in the meantime has its base.
//
// The sums of the counters must be those of the archived rows: what is recorded here is what the bill rests on when the
// rows have left.
func (r *run) recordBase(id string, m calendar.Month, rows []meterJSON) error {
	sums := map[uint32]amount.Amount{}
	for from := (store.CounterPlace{Month: m}); from.Month == m; {
		var base *ledger.Base // nil: the month is archived
		var next store.CounterPlace
		err := r.store.Update(r.ctx, id, func(tx store.Tx) (err error) {
			base = nil // the transaction may be the second, after one that came to nothing
			if _, there := tx.Horizon().Archive(m); there {
				return nil
			}
			if base, next, err = baseFrom(tx, from); err != nil || len(base.Counters) == 0 {
				return err
			}
			return appendChange(tx, "period", "base_recorded", m.String(), "", ledger.BaseKind.State(base))
		})
		if err != nil || base == nil {
			return err
		}
		from = next
		for i := range base.Counters {
			c := &base.Counters[i]
			sum, ok := sums[c.Meter].Add(c.All().Sum)
			if sums[c.Meter] = sum; !ok {
				return errors.New("the sum of a meter overflows")
			}
		}
	}
	return r.agree(id, sums, rows)
}

// agree compares the sums of counters with those of rows.
func (r *run) agree(id string, sums map[uint32]amount.Amount, rows []meterJSON) error {
	return r.store.View(r.ctx, id, func(v store.View) error {
		slugs, err := store.Slugs(v)
		if err != nil {
			return err
		}
		want := map[string]string{}
		for _, m := range rows {
			want[m.Meter] = m.Sum
		}
		for n, sum := range sums {
			if w := cmp.Or(want[slugs[n]], amount.Zero.String()); sum.String() != w {
				return fmt.Errorf("the counters of meter %s add up to %s, the rows to %s: run `tallystick verify`; "+
					"no row has left", slugs[n], sum, w)
			}
		}
		return nil
	})
}

// baseFrom takes some counters of a month and returns where the rest begins; in no month when there is none.
func baseFrom(v store.View, from store.CounterPlace) (*ledger.Base, store.CounterPlace, error) {
	slugs, err := store.Slugs(v)
	if err != nil {
		return nil, from, err
	}
	numbers := map[string]uint32{}
	for n, slug := range slugs {
		numbers[slug] = n
	}
	out, next, size := &ledger.Base{Month: from.Month}, store.CounterPlace{}, 0
	err = v.Counters(from, func(p store.CounterPlace, c *usage.Counter) bool {
		if p.Month != from.Month {
			return false
		}
		p.Meter, p.Customer = strings.Clone(p.Meter), strings.Clone(p.Customer)
		if size > baseBytes {
			next = p
			return false
		}
		out.Counters = append(out.Counters,
			ledger.BaseCounter{Meter: numbers[p.Meter], Customer: p.Customer, Counter: *c})
		size += 500 + 2*len(p.Customer) + 2*len(c.OnTime.LastKey)
		return true
	})
	return out, next, err
}
