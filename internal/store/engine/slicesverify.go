package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/slice"
)

// sliceCheck holds slices against the journal: the rows of each file are those of its month in the records that it
// covers. Its snapshot is taken before the journal is read.
type sliceCheck struct {
	set      *slice.Set
	snapshot *slice.Snapshot
	parts    []slice.Part
	want     []slice.Digest           // of each part
	months   map[calendar.Month][]int // parts, in the order of the journal; those behind are dropped
	outside  error                    // the first row that is in no part
}

func (e *Engine) newSliceCheck() *sliceCheck {
	if e.slicer == nil {
		return nil
	}
	c := &sliceCheck{set: e.slicer.set, snapshot: e.slicer.set.Acquire(), months: map[calendar.Month][]int{}}
	c.parts = c.snapshot.Parts()
	c.want = make([]slice.Digest, len(c.parts))
	for i := range c.parts {
		c.months[c.parts[i].Month] = append(c.months[c.parts[i].Month], i)
	}
	for _, list := range c.months {
		slices.SortFunc(list, func(a, b int) int {
			if c.parts[a].From.Less(c.parts[b].From) {
				return -1
			}
			return 1
		})
	}
	return c
}

func (c *sliceCheck) release() {
	if c != nil {
		c.snapshot.Release()
	}
}

func (c *sliceCheck) bytes() int64 {
	if c == nil {
		return 0
	}
	return c.snapshot.Bytes()
}

// rows takes what a record's section has. Records come in their order.
func (c *sliceCheck) rows(b *book, pos journal.Position, s *section) {
	if c == nil || !pos.Less(c.snapshot.Covered) {
		return
	}
	catalog := b.published.Load().resident.Catalog
	for i := range s.rows {
		r := &s.rows[i]
		if r.Kind() != ledger.EventRow || c.inHole(r.Event.Month(), pos) {
			continue
		}
		d := c.partAt(r.Event.Month(), pos)
		if d == nil {
			c.outside = cmp.Or(c.outside,
				fmt.Errorf("row %d of tenant %s is in no slice and in no hole of them: run `tallystick rebuild`", r.Seq,
					b.id))
			continue
		}
		for j := range r.Event.Outcomes {
			o := &r.Event.Outcomes[j]
			d.Add(b.id, catalog.Number(o.Meter).Slug, r, o)
		}
	}
}

// partAt is the digest of the part that a record's rows of a month belong to, or nil.
func (c *sliceCheck) partAt(m calendar.Month, pos journal.Position) *slice.Digest {
	list := c.months[m]
	for len(list) > 0 && !pos.Less(c.parts[list[0]].To) {
		list = list[1:]
	}
	c.months[m] = list
	if len(list) == 0 || !c.parts[list[0]].Holds(pos) {
		return nil
	}
	return &c.want[list[0]]
}

func (c *sliceCheck) inHole(m calendar.Month, pos journal.Position) bool {
	for _, h := range c.snapshot.Holes {
		if h.Month == m && h.Holds(pos) {
			return true
		}
	}
	return false
}

// compare says what is wrong with the slices. All records were seen. Files that are damaged are set aside, and each
// is reported once, together with those that were found by others since the last verification.
func (c *sliceCheck) compare(going func() error, reached func(bytes int64)) error {
	if c == nil {
		return nil
	}
	for i := range c.parts {
		err := c.snapshot.Verify(&c.parts[i], c.want[i], func(bytes int64) error {
			reached(bytes)
			return going()
		})
		if ended := going(); ended != nil {
			return ended
		}
		var damage *slice.Damage
		if err != nil && !errors.As(err, &damage) {
			return err
		}
		c.set.Report(err)
	}
	if err := c.set.VerifyManifest(); err != nil {
		return err
	}
	return errors.Join(append(c.set.TakeDamage(), c.outside)...)
}

// Settle waits until the slices hold everything that is durable now and nothing is left to merge. Without slices there
// is nothing to wait for.
func (e *Engine) Settle(ctx context.Context) error {
	if e.slicer == nil {
		return nil
	}
	return e.slicer.settle(ctx)
}
