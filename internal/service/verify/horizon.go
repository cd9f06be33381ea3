package verify

import (
	"fmt"
	"reflect"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/entity"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
)

// bygone is what the ledger says of months whose rows have left: folding starts from their base.
type bygone struct {
	horizon store.Horizon
	bases   map[usage.CounterID]base
	lasts   map[uint64]bool // of archives: whether that row is there
	left    map[calendar.Month]bool
}

// base is a counter as one row of the ledger says it was.
type base struct {
	usage.Counter
	seq uint64
}

func newBygone(v store.View) bygone {
	b := bygone{bases: map[usage.CounterID]base{}, lasts: map[uint64]bool{}, left: map[calendar.Month]bool{}}
	for _, a := range v.Horizon().Archives {
		b.lasts[a.Last] = false
	}
	return b
}

// note takes a change in.
func (b *recount) noteBygone(e *entity.Entity) (err error) {
	if b.bygone.horizon, err = b.bygone.horizon.With(e); err != nil {
		return err
	}
	in, err := ledger.BaseKind.ReadIf(e)
	if err != nil || in == nil {
		return err
	}
	for i := range in.Counters {
		c := &in.Counters[i]
		b.bygone.bases[usage.CounterID{Meter: c.Meter, Customer: c.Customer, Month: in.Month}] = base{c.Counter, e.Seq}
		if c.HasRows() {
			b.entities.used[c.Meter] = true
		}
	}
	return nil
}

// met notes that a row is there.
func (b *recount) met(seq uint64) {
	if _, asked := b.bygone.lasts[seq]; asked {
		b.bygone.lasts[seq] = true
	}
}

// settleBygone decides, after the first pass, which months have left. The last row leaves first, so it shows.
func (b *recount) settleBygone() {
	for _, a := range b.bygone.horizon.Archives {
		if a.Last > 0 && !b.bygone.lasts[a.Last] {
			b.bygone.left[a.Month] = true
		}
	}
	got := b.v.Horizon()
	if want := b.bygone.horizon; want.Floor != got.Floor || len(want.Archives) != len(got.Archives) ||
		len(want.Archives) > 0 && !reflect.DeepEqual(want.Archives, got.Archives) {
		b.differs("horizon", fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got))
	}
}

// foldBases gives the counters of months that have left what their base says.
func (b *recount) foldBases() {
	for id, c := range b.bygone.bases {
		if !b.bygone.left[id.Month] {
			continue
		}
		t := b.tally(id)
		t.base = &c.Counter
		t.onTime, t.all = c.OnTime, c.Late
		t.started, t.watermark, t.manual = c.Started, c.Watermark, c.Manual
	}
}

// inBase reports whether a person's adjustment is in the base of its counter already.
func (b *recount) inBase(id usage.CounterID, seq uint64) bool {
	c, ok := b.bygone.bases[id]
	return ok && b.bygone.left[id.Month] && seq <= c.seq
}

// checkGone wants the rows that are not there to be those of an archive.
func (b *recount) checkGone(s *ledger.Section) {
	if s.Gone == 0 {
		return
	}
	for i, seq := 0, s.First; seq < s.First+uint64(s.Count()); seq++ {
		if i < len(s.Rows) && s.Rows[i].Seq == seq {
			i++
			continue
		}
		within := false
		for _, a := range b.v.Horizon().Archives {
			within = within || seq >= a.First && seq <= a.Last
		}
		if !within {
			b.differs(fmt.Sprintf("row %d", seq), "a row", "none, and no archive says that it has left")
		}
	}
}
