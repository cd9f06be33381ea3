package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// Bounds of reading in pages. A page is read whole before its rows are shown, because whoever is shown a row may ask
// for more, and the connection must then be free.
const (
	pageRows     = 2000
	pageSections = 500
	pageCounters = 500
	// maxScan is how many rows one call of Rows looks at. A caller that finds nothing in that many goes on from where
	// it stopped.
	maxScan = 100_000
)

func (v *view) Rows(after uint64, hint store.RowHint, fn func(*ledger.Row) bool) (last uint64, end bool, err error) {
	last = after
	if err := v.set.Horizon.Missing(after, hint, v.hasLeft); err != nil {
		return last, false, err
	}
	for limit := after + maxScan; last < v.base; {
		if last >= limit {
			return last, false, nil
		}
		to := min(last+pageRows, v.base)
		rows, to, err := v.page(last, to, hint)
		if err != nil {
			return last, false, err
		}
		for i := range rows {
			if last = rows[i].Seq; !fn(&rows[i]) {
				return last, last >= v.head.Seq, nil
			}
		}
		last = to
	}
	if v.tx != nil {
		for i := range v.tx.rows {
			if r := &v.tx.rows[i]; r.Seq > last {
				if last = r.Seq; !fn(r) {
					return last, last >= v.head.Seq, nil
				}
			}
		}
	}
	return last, true, nil
}

// page reads the rows above after and up to to. Where events are not wanted the others are few and far between, so that
// a page of them reaches further; it returns how far.
func (v *view) page(after, to uint64, hint store.RowHint) (rows []ledger.Row, reached uint64, err error) {
	if hint.Events || !hint.Entries && !hint.Changes {
		err = v.between(after, to, hint, func(r *ledger.Row) { rows = append(rows, *r) })
		return inOrder(rows), to, err
	}
	reached = v.base
	for _, table := range [...]struct {
		wanted bool
		after  *statement
		read   func(*reader) (ledger.Row, error)
	}{{hint.Entries, entriesAfter, readEntry}, {hint.Changes, changesAfter, readChange}} {
		if !table.wanted {
			continue
		}
		n, last := 0, uint64(0)
		err = v.ask(table.after, eachRow(table.read, func(r *ledger.Row) {
			rows = append(rows, *r)
			n, last = n+1, r.Seq
		}), int8Param(int64(after)), int8Param(pageRows))
		if err != nil {
			return nil, after, err
		}
		if n == pageRows {
			reached = min(reached, last)
		}
	}
	rows = slices.DeleteFunc(inOrder(rows), func(r ledger.Row) bool { return r.Seq > reached })
	return rows, reached, nil
}

// between reads the rows above after and up to to that the hint names, table by table. All are in the tables.
func (v *view) between(after, to uint64, hint store.RowHint, fn func(*ledger.Row)) error {
	from, until := int8Param(int64(after)), int8Param(int64(to))
	if hint.Events {
		low, high := hint.From, hint.To
		if high == 0 {
			high = calendar.MaxMicros + 1
		}
		err := v.ask(eventsBetween, v.each(fn), from, until, timeParam(low), timeParam(high),
			[]byte{boolByte(hint.Adjusted)})
		if err != nil {
			return err
		}
	}
	if hint.Entries {
		if err := v.ask(entriesBetween, eachRow(readEntry, fn), from, until); err != nil {
			return err
		}
	}
	if !hint.Changes {
		return nil
	}
	return v.ask(changesBetween, eachRow(readChange, fn), from, until)
}

// eachRow calls fn for every row that read makes of a result.
func eachRow(read func(*reader) (ledger.Row, error), fn func(*ledger.Row)) func(*reader) error {
	return func(in *reader) error {
		r, err := read(in)
		if err == nil {
			fn(&r)
		}
		return err
	}
}

func inOrder(rows []ledger.Row) []ledger.Row {
	slices.SortFunc(rows, func(a, b ledger.Row) int { return cmp.Compare(a.Seq, b.Seq) })
	return rows
}

// PrunedSections implements store.View.
func (v *view) PrunedSections(first uint64, fn func(*ledger.Section) error) error {
	if err := v.sectionsInTables(first, fn); err != nil {
		return err
	}
	if v.tx != nil && len(v.tx.rows) > 0 && first <= v.head.Seq {
		return fn(&ledger.Section{First: v.tx.rows[0].Seq, At: v.tx.rows[0].At, Rows: v.tx.rows})
	}
	return nil
}

func (v *view) sectionsInTables(first uint64, fn func(*ledger.Section) error) error {
	if first > v.base {
		return nil
	}
	read := func(into *[]place) func(*reader) error {
		return func(in *reader) error {
			*into = append(*into, place{uint64(in.int8()), int(in.int4()), in.time()})
			return nil
		}
	}
	var holder []place
	if err := v.ask(sectionOf, read(&holder), int8Param(int64(max(first, 1)))); err != nil {
		return err
	}
	if len(holder) == 0 {
		return v.missing(first)
	}
	for begin := holder[0].first; ; {
		var places []place
		if err := v.ask(sectionsFrom, read(&places), int8Param(int64(begin)), int8Param(pageSections)); err != nil {
			return err
		}
		for rest := places; len(rest) > 0; {
			n, err := v.someSections(rest, fn)
			if err != nil {
				return err
			}
			begin, rest = rest[n-1].first+1, rest[n:]
		}
		if len(places) < pageSections {
			return nil
		}
	}
}

// place is where a section is.
type place struct {
	first uint64
	rows  int
	at    calendar.Micros
}

// missing is the error of a row that must be there.
func (v *view) missing(seq uint64) error {
	return v.s.portError(v.ctx, fmt.Errorf("row %d of tenant %s is not in its table: %w", seq, v.tenantID, errDefect))
}

// someSections reads the rows of as many sections as fit a page, at least one, and shows them. It returns how many.
func (v *view) someSections(places []place, fn func(*ledger.Section) error) (int, error) {
	n, count := 0, 0
	for n < len(places) && (n == 0 || count+places[n].rows <= pageRows) {
		count += places[n].rows
		n++
	}
	rows := make([]ledger.Row, 0, count)
	after := places[0].first - 1
	all := store.RowHint{Events: true, Entries: true, Changes: true}
	err := v.between(after, after+uint64(count), all, func(r *ledger.Row) { rows = append(rows, *r) })
	if err != nil {
		return 0, err
	}
	rows = inOrder(rows)
	for _, p := range places[:n] {
		s, err := v.section(p, &rows)
		if err == nil {
			err = fn(s)
		}
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (v *view) Counters(from store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool) error {
	if err := store.CheckPlace(from.Meter, from.Customer); err != nil {
		return err
	}
	pending := v.pendingPlaces(from)
	for {
		var some []*cell
		err := v.ask(countersFrom, func(in *reader) error {
			c, err := readCounter(in)
			some = append(some, c)
			return err
		}, monthParam(from.Month), []byte(from.Meter), []byte(from.Customer), int8Param(pageCounters))
		if err != nil {
			return err
		}
		for i := range some {
			at, c := some[i].place, &some[i].Counter
			for len(pending) > 0 && byPlace(pending[0], at) < 0 {
				if goOn, err := v.showPending(pending[0], fn); err != nil || !goOn {
					return err
				}
				pending = pending[1:]
			}
			if len(pending) > 0 && pending[0] == at {
				pending = pending[1:]
			}
			if number, ok := v.set.numberOf(at.Meter); ok {
				err := v.addPending(usage.CounterID{Meter: number, Customer: at.Customer, Month: at.Month}, c)
				if err != nil {
					return err
				}
			}
			if !fn(at, c) {
				return nil
			}
		}
		if len(some) < pageCounters {
			break
		}
		from = some[len(some)-1].place
		from.Customer += "\x01" // no customer lies between the two: the lowest byte of a name is one above NUL
	}
	for _, p := range pending {
		if goOn, err := v.showPending(p, fn); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// pendingPlaces lists the counters that an update has changed, from a place on.
func (v *view) pendingPlaces(from store.CounterPlace) (out []store.CounterPlace) {
	if v.tx == nil {
		return nil
	}
	for id := range v.tx.pending {
		p := store.CounterPlace{Month: id.Month, Meter: v.set.Catalog.Number(id.Meter).Slug, Customer: id.Customer}
		if byPlace(p, from) >= 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, byPlace)
	return out
}

// showPending shows a counter that only an update knows, and reports whether more are wanted.
func (v *view) showPending(
	p store.CounterPlace, fn func(store.CounterPlace, *usage.Counter) bool,
) (goOn bool, err error) {
	number, _ := v.set.numberOf(p.Meter)
	var c usage.Counter
	if err := v.addPending(usage.CounterID{Meter: number, Customer: p.Customer, Month: p.Month}, &c); err != nil {
		return false, err
	}
	return fn(p, &c), nil
}

func byPlace(a, b store.CounterPlace) int {
	return cmp.Or(cmp.Compare(a.Month, b.Month), strings.Compare(a.Meter, b.Meter),
		strings.Compare(a.Customer, b.Customer))
}

// Months implements store.View. It asks for one month after the other: there are a dozen in a year, and counters
// without number.
func (v *view) Months(from calendar.Month, limit int) ([]calendar.Month, error) {
	var out []calendar.Month
	for next, found := from, true; found && len(out) < limit; next++ {
		found = false
		err := v.ask(nextMonth, func(in *reader) error {
			next, found = in.month(), true
			out = append(out, next)
			return nil
		}, monthParam(next))
		if err != nil {
			return nil, err
		}
	}
	for _, p := range v.pendingPlaces(store.CounterPlace{Month: from}) {
		out = append(out, p.Month)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(max(limit, 0), len(out))], nil
}
