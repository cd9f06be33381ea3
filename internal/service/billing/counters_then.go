package billing

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/service/asof"
	"github.com/tallystick/tallystick/internal/store"
)

// countersThen lists counters as they were. Counters never go away, so that those of today name all that there were;
// each is folded anew from its rows.
func (s *Service) countersThen(v store.View, f CounterFilter, after *store.CounterPlace,
	limit int) (items []Counter, next *store.CounterPlace, err error) {
	then, err := asof.Open(v, f.AsOf)
	if err != nil {
		return nil, nil, err
	}
	if f.Meter != "" {
		if _, err := then.Meter(f.Meter); err != nil {
			return nil, nil, err
		}
	}
	scan := scan{filter: f, after: after, limit: max(limit, 1), looks: s.looks, empty: true}
	if err := scan.run(v); err != nil {
		return nil, nil, err
	}
	if items, err = asThen(then, scan.items); err != nil {
		return nil, nil, err
	}
	return items, scan.next, nil
}

// asThen turns counters back, leaving out those that were not there.
func asThen(then *asof.Ledger, today []Counter) ([]Counter, error) {
	names := make(map[usage.CounterID]bool, len(today))
	kept := today[:0]
	for _, c := range today {
		m, err := then.Meter(c.Meter.Slug)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.Meter = m
		kept = append(kept, c)
		if c.Counter.Adjusted { // once adjusted, a counter says so for good
			names[c.id()] = true
		}
	}
	manual, err := then.Manual(names)
	if err != nil {
		return nil, err
	}
	var out []Counter
	for i := range kept {
		c := &kept[i]
		if c.Counter, err = then.Counter(&c.Meter, c.id(), manual[c.id()]); err != nil {
			return nil, fmt.Errorf("fold the counter of %s in %s: %w", c.Meter.Slug, c.Month, err)
		}
		if isEmpty(&c.Counter) {
			continue
		}
		p, err := then.Period(c.Month)
		if err != nil {
			return nil, err
		}
		c.Closed = p.Closed
		out = append(out, *c)
	}
	return out, nil
}

func (c *Counter) id() usage.CounterID {
	return usage.CounterID{Meter: c.Meter.Number, Customer: c.Customer, Month: c.Month}
}
