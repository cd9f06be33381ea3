package slice

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/zeebo/xxh3"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
)

// Batch gathers rows in the order of the journal until they are sorted and written. It is reused.
//
// Rows are sorted by numbers alone: what they share, their series, is distinguished once by a map, and the few series
// are sorted by their names. Comparing four strings for every comparison of a sort costs more than all the rest.
type Batch struct {
	rows   []row
	series []series
	byName map[seriesName]uint32
	text   text
	order  []place
}

// seriesName is what the rows of a series share.
type seriesName struct {
	month                   calendar.Month
	tenant, meter, customer string
}

type series struct {
	seriesName
	rank uint32
	hash uint64
}

// row is what one fact did to one meter.
type row struct {
	series     uint32
	why        usage.Why
	overage    bool
	space      usage.Space
	time, at   calendar.Micros
	seq        uint64
	key        string
	resource   string
	properties string
	member     string
	corrects   string
	quantity   amount.Amount
	value      amount.Amount
	base       amount.Amount
	adjusted   amount.Amount
}

const rowBytes = int(unsafe.Sizeof(row{}) + unsafe.Sizeof(place{}))

// place is a row's in the sorted order.
type place struct {
	rank uint32
	row  uint32
	time calendar.Micros
}

// Add takes what a row did to its meters. slug names a meter.
func (b *Batch) Add(tenant string, r *ledger.Row, slug func(uint32) string) {
	e := r.Event
	shared := row{
		space: e.Key.Space, time: e.Time, at: r.At, seq: r.Seq, quantity: e.Quantity,
		key: b.text.keep(e.Key.Name), resource: b.text.keep(e.Resource), properties: b.text.keep(e.Properties),
		corrects: b.text.keep(e.Corrects),
	}
	name := seriesName{month: e.Month(), tenant: tenant, customer: e.Customer}
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		name.meter = slug(o.Meter)
		w := shared
		w.series, w.why, w.overage, w.member = b.number(name), o.Why, o.Overage, b.text.keep(o.Member)
		w.value, w.base, w.adjusted = o.Value, o.Base, o.Amount
		b.rows = append(b.rows, w)
	}
}

func (b *Batch) number(name seriesName) uint32 {
	if n, ok := b.byName[name]; ok {
		return n
	}
	if b.byName == nil {
		b.byName = map[seriesName]uint32{}
	}
	name.customer, name.tenant = strings.Clone(name.customer), strings.Clone(name.tenant)
	n := uint32(len(b.series))
	b.series = append(b.series, series{seriesName: name, hash: hashSeries(name.tenant, name.meter, name.customer)})
	b.byName[name] = n
	return n
}

// Len is the number of rows, and Bytes what they take in memory, about.
func (b *Batch) Len() int   { return len(b.rows) }
func (b *Batch) Bytes() int { return len(b.rows)*rowBytes + b.text.bytes }

// Reset makes the batch empty.
func (b *Batch) Reset() {
	clear(b.rows)
	b.rows, b.series, b.order = b.rows[:0], b.series[:0], b.order[:0]
	clear(b.byName)
	b.text.reset()
}

// Sort puts the rows into the order of the files and returns the months that they are of.
func (b *Batch) Sort() []calendar.Month {
	byRank := make([]uint32, len(b.series))
	for i := range byRank {
		byRank[i] = uint32(i)
	}
	slices.SortFunc(byRank, func(x, y uint32) int {
		return compareSeries(&b.series[x].seriesName, &b.series[y].seriesName)
	})
	var months []calendar.Month
	for rank, i := range byRank {
		b.series[i].rank = uint32(rank)
		if m := b.series[i].month; len(months) == 0 || months[len(months)-1] != m {
			months = append(months, m)
		}
	}
	for i := range b.rows {
		b.order = append(b.order, place{rank: b.series[b.rows[i].series].rank, row: uint32(i), time: b.rows[i].time})
	}
	// Rows of a series come in the order of their numbers, so that order settles equal times.
	slices.SortFunc(b.order, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(x.time, y.time), cmp.Compare(x.row, y.row))
	})
	return months
}

func compareSeries(x, y *seriesName) int {
	return cmp.Or(cmp.Compare(x.month, y.month), strings.Compare(x.tenant, y.tenant), strings.Compare(x.meter, y.meter),
		strings.Compare(x.customer, y.customer))
}

func hashSeries(tenant, meter, customer string) uint64 {
	return xxh3.HashString(tenant)*3 + xxh3.HashString(meter)*5 + xxh3.HashString(customer)*7
}

// Write writes the rows of one month. The batch is sorted.
func (b *Batch) Write(w *Writer, m calendar.Month, pace func() bool) error {
	from, _ := slices.BinarySearchFunc(b.order, m, b.monthCompare)
	to, _ := slices.BinarySearchFunc(b.order, m+1, b.monthCompare)
	name := parquet.ByteArrayValue([]byte(m.String()))
	var page columnValues
	for from < to {
		n := min(to-from, w.room())
		page.fill(b, b.order[from:from+n], name)
		for _, p := range b.order[from : from+n] {
			r := &b.rows[p.row]
			value := r.value.Decimal()
			w.digest += digest(b.series[r.series].hash, r.seq, r.time, &value)
		}
		if err := w.append(&page.columns, 0, n); err != nil {
			return err
		}
		from += n
		if !pace() {
			return ErrStopped
		}
	}
	return nil
}

func (b *Batch) monthCompare(p place, m calendar.Month) int {
	return cmp.Compare(b.series[b.rows[p.row].series].month, m)
}

// Digest distinguishes sets of rows, in whatever order they are.
type Digest struct {
	Rows int64
	Sum  uint64
}

// Add takes a row's part in a meter into the digest.
func (d *Digest) Add(tenant, meter string, r *ledger.Row, o *usage.Outcome) {
	d.Rows++
	value := o.Value.Decimal()
	d.Sum += digest(hashSeries(tenant, meter, r.Event.Customer), r.Seq, r.Event.Time, &value)
}

// digest is a number of a row such that the sum over rows distinguishes sets of rows.
func digest(series, seq uint64, t calendar.Micros, value *amount.Decimal) uint64 {
	h := xxh3.Hash(value[:])
	for _, n := range [...]uint64{series, seq, uint64(t)} {
		h = (h ^ n) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h
}

// columnValues holds up to a page of rows by columns.
type columnValues struct {
	columns  [columnCount][]parquet.Value
	decimals []byte
}

func (c *columnValues) fill(b *Batch, order []place, month parquet.Value) {
	for i := range c.columns {
		c.columns[i] = slices.Grow(c.columns[i][:0], len(order))[:len(order)]
	}
	c.decimals = slices.Grow(c.decimals[:0], 4*16*len(order)) // values refer to it, so it must not grow below
	for i, p := range order {
		r := &b.rows[p.row]
		s := &b.series[r.series]
		c.columns[colTenant][i] = stringValue(s.tenant)
		c.columns[colMonth][i] = month
		c.columns[colMeter][i] = stringValue(s.meter)
		c.columns[colCustomer][i] = stringValue(s.customer)
		c.columns[colTime][i] = parquet.Int64Value(int64(r.time))
		c.columns[colSeq][i] = parquet.Int64Value(int64(r.seq))
		c.columns[colAt][i] = parquet.Int64Value(int64(r.at))
		c.columns[colKeySpace][i] = spaceValue(r.space)
		c.columns[colKey][i] = stringValue(r.key)
		c.columns[colResource][i] = stringValue(r.resource)
		c.columns[colProperties][i] = stringValue(r.properties)
		c.columns[colQuantity][i] = c.decimal(r.quantity)
		c.columns[colValue][i] = c.decimal(r.value)
		c.columns[colWhy][i] = whyValues[r.why]
		c.columns[colOverage][i] = parquet.BooleanValue(r.overage)
		c.columns[colMember][i] = stringValue(r.member)
		c.columns[colCorrects][i] = stringValue(r.corrects)
		c.columns[colBase][i] = c.decimal(r.base)
		c.columns[colAdjusted][i] = c.decimal(r.adjusted)
	}
}

func (c *columnValues) decimal(a amount.Amount) parquet.Value {
	d := a.Decimal()
	at := len(c.decimals)
	c.decimals = append(c.decimals, d[:]...)
	return parquet.FixedLenByteArrayValue(c.decimals[at : at+len(d)])
}

func stringValue(s string) parquet.Value {
	return parquet.ByteArrayValue(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// The words of the columns key_space and why.
var (
	clientSpace  = stringValue("client")
	derivedSpace = stringValue("derived")
	whyValues    = [...]parquet.Value{
		usage.OnTime: stringValue(usage.OnTime.String()), usage.TooLate: stringValue(usage.TooLate.String()),
		usage.PeriodClosed: stringValue(usage.PeriodClosed.String()),
		usage.TargetWas:    stringValue(usage.TargetWas.String()),
	}
)

func spaceValue(s usage.Space) parquet.Value {
	if s == usage.DerivedSpace {
		return derivedSpace
	}
	return clientSpace
}

// text keeps strings in blocks, which are cheaper than one piece of memory each.
type text struct {
	block []byte
	bytes int
}

const textBlock = 256 << 10

func (t *text) keep(s string) string {
	if s == "" {
		return ""
	}
	if cap(t.block)-len(t.block) < len(s) {
		t.block = make([]byte, 0, max(textBlock, len(s)))
	}
	at := len(t.block)
	t.block = append(t.block, s...)
	t.bytes += len(s)
	return unsafe.String(&t.block[at], len(s))
}

func (t *text) reset() { *t = text{block: t.block[:0:0]} }
