package postgres

import (
	"context"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// rollupRows is how many rows one transaction of the roller adds up. The more there are, the more of them share a day,
// which is then written once; they are held in memory, some 200 bytes each.
const rollupRows = 50_000

// dayName is a day of a meter: of one customer, or of all when customer is "".
type dayName struct {
	meter    uint32
	customer string
	day      calendar.Day
}

func (n dayName) month() calendar.Month { return calendar.MonthOf(n.day.Hour(0)) }

// rolledRow is a row without what adding up does not look at. Thousands of them are held at once.
type rolledRow struct {
	seq      uint64
	time     calendar.Micros
	customer string
	corrects string
	key      usage.Key       // only where a meter keeps the last fact
	plain    usage.Outcome   // of a row that says no more than its columns
	outcomes []usage.Outcome // of any other
}

// foldings are what rows do to days.
type foldings struct {
	set       *residentSet
	rows      []rolledRow
	customers map[string]string // each name once
	before    correctedBefore
	days      map[dayName][]folding // in order of the rows
}

// folding is what a row does to one day.
type folding struct {
	row     *rolledRow
	outcome *usage.Outcome
}

// read reads rows, from one number to another, and what corrections did before to the facts that they correct.
func (f *foldings) read(ask asking, after, upTo uint64) error {
	f.customers = map[string]string{}
	err := ask(rowsToRollUp, f.take, int8Param(int64(after)), int8Param(int64(upTo)),
		[]byte{boolByte(f.set.Catalog.Has(meter.Last))})
	if err != nil {
		return err
	}
	targets := f.targets()
	if len(targets) == 0 {
		return nil
	}
	each := eachRow(func(in *reader) (ledger.Row, error) { return readEvent(in, f.set) }, f.before.take)
	return ask(corrections, each, textsParam(targets))
}

// take reads a row of rowsToRollUp.
func (f *foldings) take(in *reader) error {
	r := rolledRow{seq: uint64(in.int8()), time: in.time(), plain: usage.Outcome{Value: in.amount()}}
	customer, slug := in.next(-1), in.next(-1)
	r.corrects = in.text()
	key, plain, outcomes := in.text(), in.isNull(), in.next(-1)
	if in.err != nil {
		return in.err
	}
	name, known := f.customers[string(customer)]
	if !known {
		name = string(customer)
		f.customers[name] = name
	}
	r.customer = name
	if key != "" {
		r.key = usage.Key{Space: usage.Space(key[0]), Name: key[1:]}
	}
	if plain {
		number, ok := f.set.numberOf(string(slug))
		if !ok {
			return fmt.Errorf("row %d names meter %q, which does not exist", r.seq, slug)
		}
		r.plain.Meter = number
	} else {
		var err error
		if r.outcomes, err = readOutcomes(outcomes); err != nil {
			return fmt.Errorf("read the outcomes of row %d: %w", r.seq, err)
		}
	}
	f.rows = append(f.rows, r)
	return nil
}

// plan says what the rows do to which days. Wanted names the days to look at; nil: all.
func (f *foldings) plan(wanted func(dayName) bool) {
	f.days = map[dayName][]folding{}
	for i := range f.rows {
		r := &f.rows[i]
		if r.outcomes == nil {
			f.planOutcome(folding{r, &r.plain}, wanted)
		}
		for j := range r.outcomes {
			f.planOutcome(folding{r, &r.outcomes[j]}, wanted)
		}
	}
}

func (f *foldings) planOutcome(x folding, wanted func(dayName) bool) {
	if m := f.set.Catalog.Number(x.outcome.Meter); m == nil || !usage.RollsUp(m.Aggregation) {
		return
	}
	day, _ := calendar.DayOf(x.row.time)
	for _, customer := range [...]string{"", x.row.customer} {
		if n := (dayName{x.outcome.Meter, customer, day}); wanted == nil || wanted(n) {
			f.days[n] = append(f.days[n], x)
		}
	}
}

// fold adds what was planned to a day.
func (f *foldings) fold(n dayName, d *usage.Day) {
	a := f.set.Catalog.Number(n.meter).Aggregation
	for _, x := range f.days[n] {
		r, o := x.row, x.outcome
		if r.corrects == "" {
			d.Add(a, o.Value, r.time, r.key)
			continue
		}
		target := usage.KeyOfID(r.corrects)
		d.Correct(a, o, f.before.of(target, o.Meter, r.seq), r.time, target)
	}
}

// targets are the facts that the rows correct.
func (f *foldings) targets() []string {
	seen := map[string]bool{}
	var out []string
	for i := range f.rows {
		if id := f.rows[i].corrects; id != "" && !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// correctedBefore knows what corrections did to facts, row by row.
type correctedBefore struct {
	by map[factMeter][]correctionRow // in order
}

type correctionRow struct {
	seq   uint64
	value amount.Amount
}

func (b *correctedBefore) take(r *ledger.Row) {
	if b.by == nil {
		b.by = map[factMeter][]correctionRow{}
	}
	for i := range r.Event.Outcomes {
		o := &r.Event.Outcomes[i]
		k := factMeter{usage.KeyOfID(r.Event.Corrects), o.Meter}
		b.by[k] = append(b.by[k], correctionRow{r.Seq, o.Value})
	}
}

// of is what corrections did to a fact before a row.
func (b *correctedBefore) of(target usage.Key, meter uint32, below uint64) (c usage.Corrected) {
	for _, r := range b.by[factMeter{target, meter}] {
		if r.seq >= below {
			break
		}
		c.Times++
		c.All, _ = c.All.Add(r.value) // what is left of a fact fits, and so does what was taken
	}
	return c
}

// rollUp adds up the next rows of a tenant and reports whether there are more. Another node may be at it: then this one
// has nothing to do.
func (s *Store) rollUp(ctx context.Context, tenantID string) (rows int, more bool, err error) {
	err = s.again(ctx, func() error {
		c, err := s.lend(ctx)
		if err != nil {
			return err
		}
		defer c.giveBack(context.WithoutCancel(ctx))
		rows, more, err = s.rollUpOn(ctx, c, tenantID)
		return err
	})
	return rows, more, err
}

func (s *Store) rollUpOn(ctx context.Context, c *session, tenantID string) (rows int, more bool, err error) {
	id := []byte(tenantID)
	ask := func(st *statement, each func(*reader) error, params ...[]byte) error {
		return c.ask(ctx, st, each, append([][]byte{id}, params...)...)
	}
	var h head
	from, held := uint64(0), false
	r := c.roundTrip(ctx)
	r.beginWriting(tenantID)
	r.send(makeRollup, nil, id)
	r.send(lockRollup, func(in *reader) error {
		from, held = uint64(in.int8()), true
		return nil
	}, id)
	r.send(readHead, s.headFrom(&h), id)
	if err := r.do(); err != nil || !held || h.Seq <= from {
		return 0, false, err
	}
	to := min(h.Seq, from+s.options.RollupRows)
	f := foldings{}
	if f.set, err = s.setOf(ctx, c, tenantID, &h); err != nil {
		return 0, false, err
	}
	if err := f.read(ask, from, to); err != nil {
		return 0, false, err
	}
	f.plan(nil)
	if err := f.write(ctx, c, id, to); err != nil {
		return 0, false, err
	}
	return int(to - from), to < h.Seq, nil
}

// setOf is the resident set of a tenant in a transaction that holds nothing: it may be newer than the head, which does
// not matter to what meters fold, and is not remembered.
func (s *Store) setOf(ctx context.Context, c *session, tenantID string, h *head) (*residentSet, error) {
	if set, _ := s.sets.get(tenantID); set != nil && set.version == h.version {
		return set, nil
	}
	return s.loadSet(ctx, c, tenantID, h.version)
}

// asking runs statements about one tenant, which is their first parameter.
type asking func(st *statement, each func(*reader) error, params ...[]byte) error

// write brings the days up to date and commits.
func (f *foldings) write(ctx context.Context, c *session, id []byte, to uint64) error {
	var at dayArrays
	at.reset()
	days := make(map[dayName]*usage.Day, len(f.days))
	for n := range f.days {
		at.add(n)
		days[n] = &usage.Day{}
	}
	err := c.ask(ctx, daysByKey, func(in *reader) error {
		n, d, err := readDay(in)
		if err == nil {
			days[n] = d
		}
		return err
	}, at.params(id)...)
	if err != nil {
		return err
	}
	at.reset()
	var hours array
	hours.reset(oidBytea)
	var buf []byte
	for n, d := range days {
		f.fold(n, d)
		at.add(n)
		buf = usage.AppendDay(buf[:0], d)
		hours.bytes(buf)
	}
	r := c.roundTrip(ctx)
	if len(days) > 0 {
		r.send(putDays, nil, append(at.params(id), hours.param())...)
	}
	r.send(moveRollup, nil, id, int8Param(int64(to)))
	r.send(commit, nil)
	return r.do()
}

// dayArrays are names of days as parameters.
type dayArrays struct{ meter, month, customer, day array }

func (a *dayArrays) reset() {
	a.meter.reset(oidInt4)
	a.month.reset(oidDate)
	a.customer.reset(oidText)
	a.day.reset(oidDate)
}

func (a *dayArrays) add(n dayName) {
	a.meter.int4(int32(n.meter))
	a.month.month(n.month())
	a.customer.text(n.customer)
	a.day.day(n.day)
}

func (a *dayArrays) params(id []byte) [][]byte {
	return [][]byte{id, a.meter.param(), a.month.param(), a.customer.param(), a.day.param()}
}

// readDay reads a row of usage_days.
func readDay(in *reader) (dayName, *usage.Day, error) {
	n := dayName{meter: uint32(in.int4()), customer: in.text(), day: in.day()}
	hours := in.next(-1)
	if in.err != nil {
		return n, nil, in.err
	}
	d, err := usage.ReadDay(hours)
	if err != nil {
		err = fmt.Errorf("hours of meter %d, customer %q, on %s: %w: run `tallystick rebuild --store`, which adds "+
			"them "+
			"up again", n.meter, n.customer, n.day.Hour(0), err)
	}
	return n, d, err
}
