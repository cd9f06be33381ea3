package postgres

import (
	"fmt"
	"sort"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/problem"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// pageSlice is how many rows of a slice are read at a time.
const pageSlice = 1500

// Columns of a slice's rows. Those that are not asked for do not travel.
const (
	sliceColumns = "seq, time, quantity, customer, corrects, outcomes"
	sliceOptions = "key, resource, properties"
)

var (
	// A type's facts name no meter.
	sliceBetween = &statement{name: "slice_between", choosy: true, sql: "SELECT " + sliceColumns + `,
			CASE WHEN $9 THEN key END, CASE WHEN $10 THEN resource END, CASE WHEN $11 THEN properties END
		FROM usage_events WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
			AND (meter = $6 OR meter = '' AND event_type = $7) ORDER BY seq LIMIT $8`}
	// The chain of a counter from one of its rows on backwards, with the row that comes before each.
	sliceOfCounter = &statement{name: "slice_of_counter", choosy: true, sql: `WITH RECURSIVE chain AS (
			SELECT ` + sliceColumns + ", " + sliceOptions + ", " + eventBefore + `
			FROM usage_events WHERE tenant_id = $1 AND seq = $2 AND seq > 0
			UNION ALL
			SELECT e.* FROM chain c CROSS JOIN LATERAL (
				SELECT ` + sliceColumns + ", " + sliceOptions + ", " + eventBefore + `
				FROM usage_events WHERE tenant_id = $1 AND seq = c.before AND seq > 0 LIMIT 1) e WHERE e.seq < c.seq
		) SELECT ` + sliceColumns + `,
			CASE WHEN $5 THEN key END, CASE WHEN $6 THEN resource END, CASE WHEN $7 THEN properties END,
			before
		FROM chain LIMIT $4`}
)

// Slice implements store.View. One customer's rows are the chains of its counters. Rows of all customers have no index,
// because that would be half of the price of writing a row: they are found by reading all rows that were committed
// since the range began.
func (v *view) Slice(q store.SliceQuery, fn func(*store.Slice) error) error {
	m := v.set.Catalog.Number(q.Meter)
	if m == nil {
		return problem.New(problem.NotFound, "no meter of that number")
	}
	if q.UpTo == 0 || q.UpTo > v.base {
		q.UpTo = v.base
	}
	q.From, q.To = max(q.From, calendar.MinMicros), min(q.To, calendar.MaxMicros+1)
	if q.From >= q.To || !clean(q.Customer) {
		return nil
	}
	if err := v.set.Horizon.Missing(0, store.RowHint{From: q.From, To: q.To, Events: true}, v.hasLeft); err != nil {
		return err
	}
	s := &slicing{view: v, query: q, slug: m.Slug, typ: m.EventType, ahead: m.Ahead(), emit: fn}
	if q.Customer != "" {
		return s.counters()
	}
	return s.scan()
}

// slicing is a slice under way.
type slicing struct {
	*view
	query  store.SliceQuery
	slug   string        // of the meter
	typ    string        // that feeds it; "": none
	ahead  time.Duration // that its rows can be of their commit
	emit   func(*store.Slice) error
	pieces map[string]*store.Slice
	order  []*store.Slice
}

// scan reads rows in order of seq.
func (s *slicing) scan() error {
	q := &s.query
	after, err := s.before(q.From.Add(-s.ahead))
	if err != nil {
		return err
	}
	for after < q.UpTo {
		n := 0
		s.pieces, s.order = map[string]*store.Slice{}, nil
		err := s.ask(sliceBetween, func(in *reader) error {
			n++
			seq, err := s.row(in)
			after = seq
			return err
		}, append([][]byte{int8Param(int64(after)), int8Param(int64(q.UpTo)), timeParam(q.From), timeParam(q.To),
			[]byte(s.slug), []byte(s.typ), int8Param(pageSlice)},
			s.wants()...)...)
		if err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
		if n < pageSlice {
			return nil
		}
	}
	return nil
}

// before finds a row below which all were committed before a time. No row of the meter is further ahead of its commit
// than Meter.Ahead says, so that rows below it have no part in what happened after.
func (s *slicing) before(t calendar.Micros) (uint64, error) {
	var failed error
	n := sort.Search(int(s.base), func(i int) bool {
		at := calendar.Micros(0)
		if failed == nil {
			failed = s.ask(sectionOf, func(in *reader) error {
				in.skip(2)
				at = in.time()
				return nil
			}, int8Param(int64(i)+1))
		}
		return failed != nil || at >= t
	})
	return uint64(n), failed
}

// counters reads the chains of one customer's counters, month by month.
func (s *slicing) counters() error {
	q := &s.query
	for month, last := calendar.MonthOf(q.From), calendar.MonthOf(q.To-1); month <= last; month++ {
		found := false
		err := s.ask(nextMonth, func(in *reader) error {
			month, found = in.month(), true
			return nil
		}, monthParam(month))
		if err != nil {
			return err
		}
		if !found || month > last {
			return nil
		}
		tail, err := s.tail(month)
		if err != nil {
			return err
		}
		for tail != 0 {
			if tail, err = s.chain(tail); err != nil {
				return err
			}
		}
	}
	return nil
}

// tail is the last row that a counter of the customer's folded.
func (s *slicing) tail(m calendar.Month) (tail uint64, err error) {
	var at placeArrays
	at.reset()
	at.add(store.CounterPlace{Month: m, Meter: s.slug, Customer: s.query.Customer})
	err = s.ask(countersByKey, func(in *reader) error {
		c, err := readCounter(in)
		if err == nil {
			tail = c.tail
		}
		return err
	}, at.month.param(), at.meter.param(), at.customer.param())
	return tail, err
}

// chain reads a page of a counter's chain and returns the row that the next one begins with, zero at the end.
func (s *slicing) chain(from uint64) (next uint64, err error) {
	s.pieces, s.order = map[string]*store.Slice{}, nil
	read, last := 0, uint64(0)
	err = s.ask(sliceOfCounter, func(in *reader) error {
		read++
		seq, err := s.row(in)
		last, next = seq, in.link()
		return err
	}, append([][]byte{int8Param(int64(from)), int8Param(int64(s.query.Meter)), int8Param(pageSlice)}, s.wants()...)...)
	if err != nil {
		return 0, err
	}
	if next != 0 && (read < pageSlice || next >= last) {
		return 0, s.missing(next)
	}
	return next, s.flush()
}

// wants says which optional columns travel.
func (s *slicing) wants() [][]byte {
	var out [][]byte
	for _, c := range [...]store.Columns{store.WantKeys, store.WantResources, store.WantProperties} {
		out = append(out, []byte{boolByte(s.query.Wants&c != 0)})
	}
	return out
}

// row takes one row into the piece of its customer, unless the query leaves it out.
func (s *slicing) row(in *reader) (uint64, error) {
	q := &s.query
	seq, at, o := uint64(in.int8()), in.time(), usage.Outcome{Meter: q.Meter, Value: in.amount()}
	customer, corrects, plain, outcomes := in.next(-1), in.text(), in.isNull(), in.next(-1)
	key, resource, properties := in.text(), in.text(), in.text()
	if in.err != nil || seq > q.UpTo || at < q.From || at >= q.To {
		return seq, in.err
	}
	if !plain {
		fed, err := outcomeOf(outcomes, q.Meter)
		if err != nil {
			return seq, fmt.Errorf("read the outcomes of row %d: %w", seq, err)
		}
		if fed == nil { // its type fed others
			return seq, nil
		}
		o = *fed
	}
	p := s.pieces[string(customer)]
	if p == nil {
		p = &store.Slice{Customer: string(customer)}
		s.pieces[p.Customer] = p
		s.order = append(s.order, p)
	}
	if corrects != "" && p.Corrects == nil {
		p.Corrects, p.Base = make([]string, p.Len()), make([]amount.Amount, p.Len())
	}
	if p.Corrects != nil {
		p.Corrects, p.Base = append(p.Corrects, corrects), append(p.Base, o.Base)
	}
	p.Seq, p.Time, p.Value, p.Why = append(p.Seq, seq), append(p.Time, at), append(p.Value, o.Value),
		append(p.Why, o.Why)
	if q.Wants&store.WantKeys != 0 {
		if key == "" {
			return seq, fmt.Errorf("row %d has no key: %w", seq, errDefect)
		}
		p.Key = append(p.Key, usage.Key{Space: usage.Space(key[0]), Name: key[1:]})
	}
	if q.Wants&store.WantResources != 0 {
		p.Resource = append(p.Resource, resource)
	}
	if q.Wants&store.WantProperties != 0 {
		p.Properties = append(p.Properties, properties)
	}
	if q.Wants&store.WantMembers != 0 {
		p.Member = append(p.Member, o.Member)
	}
	return seq, nil
}

func outcomeOf(text []byte, number uint32) (*usage.Outcome, error) {
	list, err := readOutcomes(text)
	for i := range list {
		if list[i].Meter == number {
			return &list[i], err
		}
	}
	return nil, err
}

// flush hands on what a page held. The connection is free again by then: whoever is shown a piece may ask for more.
func (s *slicing) flush() error {
	for _, p := range s.order {
		if err := s.emit(p); err != nil {
			return err
		}
	}
	return nil
}
