package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/store/engine/slab"
)

// A checkpoint gives the state its counters in the order in which it keeps them. Pebble would sort them too, by
// comparing keys that lie all over its batch; most of these comparisons are made here on a number that lies beside the
// others.

// ordered is a counter to save.
type ordered struct {
	start    uint64 // of the customer's name, behind what all names of its series start with
	ref      slab.Ref
	from, to uint32 // the name, among those that were copied
}

// order sorts the counters of one book for a checkpoint.
type order struct {
	names  []byte
	series map[uint32][]ordered
	slugs  map[uint32]series
}

// inStateOrder lists a book's counters by month, meter and customer.
func (e *Engine) inStateOrder(saving []slab.Ref) []slab.Ref {
	o := order{series: map[uint32][]ordered{}, slugs: map[uint32]series{}}
	for some := range slices.Chunk(saving, cellsAtOnce) {
		e.collect(&o, some)
	}
	out := make([]slab.Ref, 0, len(saving))
	for _, n := range slices.SortedFunc(maps.Keys(o.series), func(a, b uint32) int {
		x, y := o.slugs[a], o.slugs[b]
		return cmp.Or(cmp.Compare(x.month, y.month), strings.Compare(x.slug, y.slug))
	}) {
		of := o.series[n]
		o.sort(of)
		for i := range of {
			out = append(out, of[i].ref)
		}
	}
	return out
}

// collect copies what the order depends on. It does not change while a counter is dirty.
func (e *Engine) collect(o *order, some []slab.Ref) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, r := range some {
		one := e.cells.entry(r)
		n, from := one.u32(fieldSeries), len(o.names)
		if _, ok := o.slugs[n]; !ok {
			o.slugs[n] = e.cells.series.all[n]
		}
		o.names = append(o.names, one.customer()...)
		o.series[n] = append(o.series[n], ordered{ref: r, from: uint32(from), to: uint32(len(o.names))})
	}
}

func (o *order) name(one *ordered) []byte { return o.names[one.from:one.to] }

func (o *order) sort(of []ordered) {
	first := o.name(&of[0])
	common := len(first)
	for i := range of {
		common = commonStart(first[:common], o.name(&of[i]))
	}
	for i := range of {
		var start [8]byte
		copy(start[:], o.name(&of[i])[common:])
		of[i].start = binary.BigEndian.Uint64(start[:])
	}
	slices.SortFunc(of, func(a, b ordered) int {
		if c := cmp.Compare(a.start, b.start); c != 0 {
			return c
		}
		return bytes.Compare(o.name(&a), o.name(&b))
	})
}

func commonStart(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
