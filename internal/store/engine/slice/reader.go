package slice

import (
	"errors"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// reader answers a query from files. Only the columns that are asked for are read, and of those only what the
// statistics leave: row groups by their bounds, pages by theirs, and within the row group by bisection, because it is
// sorted.
type reader struct {
	query Query
	emit  func(*store.Slice) error

	rows    pieceRows
	piece   store.Slice
	columns [columnCount]*cursor
}

// pieceRows holds rows of one page by columns.
type pieceRows struct {
	customers  []run
	seq        []uint64
	time       []calendar.Micros
	value      []amount.Amount
	why        []usage.Why
	corrects   []string // nil when there are none
	base       []amount.Amount
	key        []usage.Key
	resource   []string
	properties []string
	member     []string
	scratch    []int64
	words      []string
}

func (r *reader) file(h *handle) error {
	for i := range h.groups {
		if !r.wanted(&h.groups[i]) {
			continue
		}
		err := r.group(h, &h.groups[i])
		for c, cur := range r.columns {
			if cur != nil {
				err = errors.Join(err, cur.close())
				r.columns[c] = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) wanted(g *group) bool {
	q := &r.query
	return g.tenant.holds(q.Tenant) && g.meter.holds(q.Meter) && (q.Customer == "" || g.customer.holds(q.Customer)) &&
		g.time.max >= int64(q.From) && g.time.min < int64(q.To) && uint64(g.seq.min) <= q.UpTo
}

// group reads the rows of a row group that the query names.
func (r *reader) group(h *handle, g *group) error {
	lo, hi := 0, g.rows
	for _, s := range [...]struct {
		column int
		want   string
		bounds bounds[string]
	}{{colTenant, r.query.Tenant, g.tenant}, {colMeter, r.query.Meter, g.meter},
		{colCustomer, r.query.Customer, g.customer}} {
		if s.want == "" || s.bounds.all(s.want) {
			continue
		}
		c, err := r.column(h, g, s.column)
		if err != nil {
			return err
		}
		if lo, hi, err = c.equal(s.want, lo, hi); err != nil || lo == hi {
			return err
		}
	}
	for lo < hi {
		// Whole pages, so that none is read twice.
		page := h.file.set.shape.pageRows
		end := min(hi, (lo/page+1)*page)
		if err := r.page(h, g, lo, end); err != nil {
			return err
		}
		lo = end
	}
	return nil
}

func (r *reader) column(h *handle, g *group, column int) (*cursor, error) {
	if r.columns[column] == nil {
		c, err := newCursor(h.file.path, g.chunks[column], g.rows)
		if err != nil {
			return nil, err
		}
		r.columns[column] = c
	}
	return r.columns[column], nil
}

// page reads rows lo to hi and hands them on, customer by customer.
func (r *reader) page(h *handle, g *group, lo, hi int) error {
	if err := r.fill(h, g, lo, hi); err != nil {
		return err
	}
	q := &r.query
	if g.time.min < int64(q.From) || g.time.max >= int64(q.To) || uint64(g.seq.max) > q.UpTo {
		r.rows.filter(q, lo)
	}
	from := 0
	for _, c := range r.rows.customers {
		to := c.end - lo
		if to > from {
			r.rows.cut(&r.piece, c.text, from, to)
			if err := r.emit(&r.piece); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// fill reads the columns.
func (r *reader) fill(h *handle, g *group, lo, hi int) (err error) {
	p := &r.rows
	load := func(column int, read func(c *cursor) error) {
		if err != nil {
			return
		}
		var c *cursor
		if c, err = r.column(h, g, column); err == nil {
			err = read(c)
		}
	}
	if g.customer.min == g.customer.max {
		p.customers = append(p.customers[:0], run{g.customer.min, hi})
	} else {
		load(colCustomer, func(c *cursor) (err error) {
			p.customers, err = c.runs(p.customers[:0], lo, hi)
			return err
		})
	}
	load(colSeq, func(c *cursor) (err error) {
		p.scratch, err = c.ints(p.scratch[:0], lo, hi)
		p.seq = p.seq[:0]
		for _, n := range p.scratch {
			p.seq = append(p.seq, uint64(n))
		}
		return err
	})
	load(colTime, func(c *cursor) (err error) {
		p.scratch, err = c.ints(p.scratch[:0], lo, hi)
		p.time = p.time[:0]
		for _, n := range p.scratch {
			p.time = append(p.time, calendar.Micros(n))
		}
		return err
	})
	load(colValue, func(c *cursor) (err error) { p.value, err = c.decimals(p.value[:0], lo, hi); return err })
	if g.why.all(usage.OnTime.String()) {
		p.why = append(p.why[:0], make([]usage.Why, hi-lo)...)
	} else {
		load(colWhy, func(c *cursor) (err error) { return p.reasons(c, lo, hi) })
	}
	p.corrects, p.base = nil, p.base[:0]
	if g.corrects.max != "" {
		load(colCorrects, func(c *cursor) (err error) { p.corrects, err = c.strings(nil, lo, hi); return err })
		load(colBase, func(c *cursor) (err error) { p.base, err = c.decimals(p.base, lo, hi); return err })
	}
	wants := r.query.Wants
	if wants&store.WantKeys != 0 {
		load(colKeySpace, func(c *cursor) (err error) { p.words, err = c.strings(p.words[:0], lo, hi); return err })
		load(colKey, func(c *cursor) error { return p.keys(c, lo, hi) })
	}
	for _, s := range [...]struct {
		want   store.Columns
		column int
		into   *[]string
	}{{store.WantResources, colResource, &p.resource}, {store.WantProperties, colProperties, &p.properties},
		{store.WantMembers, colMember, &p.member}} {
		if wants&s.want != 0 {
			load(s.column, func(c *cursor) (err error) { *s.into, err = c.strings((*s.into)[:0], lo, hi); return err })
		}
	}
	return err
}

// reasons reads the column why.
func (p *pieceRows) reasons(c *cursor, lo, hi int) (err error) {
	p.words, err = c.strings(p.words[:0], lo, hi)
	p.why = p.why[:0]
	for _, w := range p.words {
		i := slices.IndexFunc(whyValues[:], func(v parquet.Value) bool { return string(v.ByteArray()) == w })
		if i < 0 {
			return &Damage{File: c.path, Reason: "holds an unknown reason"}
		}
		p.why = append(p.why, usage.Why(i))
	}
	return err
}

// keys reads the column key; words holds the name spaces.
func (p *pieceRows) keys(c *cursor, lo, hi int) error {
	names, err := c.strings(nil, lo, hi)
	p.key = p.key[:0]
	derived := string(derivedSpace.ByteArray())
	for i, name := range names {
		k := usage.Key{Space: usage.ClientSpace, Name: name}
		if p.words[i] == derived {
			k.Space = usage.DerivedSpace
		}
		p.key = append(p.key, k)
	}
	return err
}

// filter drops the rows outside of the query's times and numbers. first is the number of the first row within its
// group.
func (p *pieceRows) filter(q *Query, first int) {
	kept, from := 0, 0
	for c := range p.customers {
		to := p.customers[c].end - first
		for i := from; i < to; i++ {
			if p.time[i] < q.From || p.time[i] >= q.To || p.seq[i] > q.UpTo {
				continue
			}
			if kept != i {
				p.move(kept, i)
			}
			kept++
		}
		p.customers[c].end = first + kept
		from = to
	}
}

func (p *pieceRows) move(to, from int) {
	p.seq[to], p.time[to], p.value[to], p.why[to] = p.seq[from], p.time[from], p.value[from], p.why[from]
	if p.corrects != nil {
		p.corrects[to], p.base[to] = p.corrects[from], p.base[from]
	}
	if len(p.key) > 0 {
		p.key[to] = p.key[from]
	}
	for _, s := range [...][]string{p.resource, p.properties, p.member} {
		if len(s) > 0 {
			s[to] = s[from]
		}
	}
}

// cut makes a piece of rows from to to.
func (p *pieceRows) cut(s *store.Slice, customer string, from, to int) {
	*s = store.Slice{Customer: customer, Seq: p.seq[from:to], Time: p.time[from:to], Value: p.value[from:to],
		Why: p.why[from:to]}
	if p.corrects != nil && slices.ContainsFunc(p.corrects[from:to], func(s string) bool { return s != "" }) {
		s.Corrects, s.Base = p.corrects[from:to], p.base[from:to]
	}
	if len(p.key) > 0 {
		s.Key = p.key[from:to]
	}
	for _, o := range [...]struct {
		from []string
		into *[]string
	}{{p.resource, &s.Resource}, {p.properties, &s.Properties}, {p.member, &s.Member}} {
		if len(o.from) > 0 {
			*o.into = o.from[from:to]
		}
	}
}
