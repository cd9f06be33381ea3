package postgres

import (
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// foldArrays are folds as parameters; a fold that is not there is null.
type foldArrays struct {
	count, sum, min, max, atMin, atMax, last, lastTime, lastKey, members array
}

func (a *foldArrays) reset() {
	for _, x := range [...]*array{&a.count, &a.atMin, &a.atMax, &a.members} {
		x.reset(oidInt8)
	}
	for _, x := range [...]*array{&a.sum, &a.min, &a.max, &a.last} {
		x.reset(oidNumeric)
	}
	a.lastTime.reset(oidTimestamptz)
	a.lastKey.reset(oidText)
}

func (a *foldArrays) add(f *usage.Fold) {
	if f == nil {
		for _, x := range a.all() {
			x.null()
		}
		return
	}
	a.count.int8(f.Count)
	a.sum.amount(f.Sum)
	a.min.amount(f.Min)
	a.max.amount(f.Max)
	a.atMin.int8(f.AtMin)
	a.atMax.int8(f.AtMax)
	a.last.amount(f.Last)
	a.lastTime.time(f.LastTime)
	a.lastKey.bytes(f.LastKey)
	a.members.int8(f.Members)
}

const foldColumnCount = 10

// all lists the arrays in the order of foldColumns.
func (a *foldArrays) all() [foldColumnCount]*array {
	return [...]*array{&a.count, &a.sum, &a.min, &a.max, &a.atMin, &a.atMax, &a.last, &a.lastTime, &a.lastKey,
		&a.members}
}

// counterArrays are counters as the parameters of an upsert.
type counterArrays struct {
	placeArrays
	watermark, generation, tail, manual, sealed, alerted array
	onTime, late                                         foldArrays
}

// placeArrays are the keys of counters.
type placeArrays struct{ month, meter, customer array }

func (a *placeArrays) reset() {
	a.month.reset(oidDate)
	a.meter.reset(oidText)
	a.customer.reset(oidText)
}

func (a *placeArrays) add(p store.CounterPlace) {
	a.month.month(p.Month)
	a.meter.text(p.Meter)
	a.customer.text(p.Customer)
}

func (a *placeArrays) params(tenantID string) [][]byte {
	return [][]byte{[]byte(tenantID), a.month.param(), a.meter.param(), a.customer.param()}
}

func (a *counterArrays) reset() {
	a.placeArrays.reset()
	a.watermark.reset(oidTimestamptz)
	a.generation.reset(oidInt4)
	a.tail.reset(oidInt8)
	a.manual.reset(oidNumeric)
	a.sealed.reset(oidNumeric)
	a.alerted.reset(oidInt2)
	a.onTime.reset()
	a.late.reset()
}

func (a *counterArrays) add(c *cell) {
	a.placeArrays.add(c.place)
	if c.Started {
		a.watermark.time(c.Watermark)
	} else {
		a.watermark.null()
	}
	a.generation.int4(int32(c.Generation))
	a.tail.link(c.tail)
	a.onTime.add(&c.OnTime)
}

// addRest writes what only counters that are not plain have.
func (a *counterArrays) addRest(c *usage.Counter) {
	if c.Adjusted {
		a.manual.amount(c.Manual)
	} else {
		a.manual.null()
	}
	if c.Sealed {
		a.sealed.amount(c.SealedAt)
	} else {
		a.sealed.null()
	}
	if c.Alerted != 0 {
		a.alerted.int2(int16(c.Alerted))
	} else {
		a.alerted.null()
	}
	a.late.add(c.Late)
}

// isPlainCounter reports whether a counter has only ever seen rows that were on time and reached no threshold.
func isPlainCounter(c *usage.Counter) bool {
	return c.Late == nil && !c.Adjusted && !c.Sealed && c.Alerted == 0
}

func (a *counterArrays) plain(tenantID string) [][]byte {
	out := append(a.placeArrays.params(tenantID), a.watermark.param(), a.generation.param(), a.tail.param())
	for _, x := range a.onTime.all() {
		out = append(out, x.param())
	}
	return out
}

func (a *counterArrays) full(tenantID string) [][]byte {
	out := append(a.plain(tenantID), a.manual.param(), a.sealed.param())
	for _, x := range a.late.all() {
		out = append(out, x.param())
	}
	return append(out, a.alerted.param())
}

// readCounter reads the columns of counterColumns into a cell without an id.
func readCounter(in *reader) (*cell, error) {
	c := &cell{stored: true}
	c.place = store.CounterPlace{Month: in.month(), Meter: in.text(), Customer: in.text()}
	if c.Started = !in.isNull(); c.Started {
		c.Watermark = in.time()
	} else {
		in.skip(1)
	}
	c.Generation = uint32(in.int4())
	c.tail = in.link()
	c.base = c.tail
	if c.Adjusted = !in.isNull(); c.Adjusted {
		c.Manual = in.amount()
	} else {
		in.skip(1)
	}
	if c.Sealed = !in.isNull(); c.Sealed {
		c.SealedAt = in.amount()
	} else {
		in.skip(1)
	}
	readFold(in, &c.OnTime)
	if !in.isNull() {
		c.Late = &usage.Fold{}
		readFold(in, c.Late)
	} else {
		in.skip(foldColumnCount)
	}
	if !in.isNull() {
		c.Alerted = uint16(in.int2())
	}
	return c, in.err
}

func readFold(in *reader, f *usage.Fold) {
	f.Count, f.Sum, f.Min, f.Max = in.int8(), in.amount(), in.amount(), in.amount()
	f.AtMin, f.AtMax, f.Last, f.LastTime, f.LastKey, f.Members = in.int8(), in.int8(), in.amount(), in.time(),
		in.bytes(), in.int8()
}
