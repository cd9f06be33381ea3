package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store/engine/journal"
	"github.com/tallystick/tallystick/internal/store/engine/slice"
)

// sliceCheck holds slices against the journal: for every month, the rows of the files are those of the records that they
// cover. Its snapshot is taken before the journal is read.
type sliceCheck struct {
	set      *slice.Set
	snapshot *slice.Snapshot
	want     map[calendar.Month]slice.Digest
}

func (e *Engine) newSliceCheck() *sliceCheck {
	if e.slicer == nil {
		return nil
	}
	return &sliceCheck{set: e.slicer.set, snapshot: e.slicer.set.Acquire(), want: map[calendar.Month]slice.Digest{}}
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

// rows takes what a record's section has.
func (c *sliceCheck) rows(b *book, pos journal.Position, s *section) {
	if c == nil || !pos.Less(c.snapshot.Covered) {
		return
	}
	catalog := b.published.Load().config.catalog
	for i := range s.rows {
		r := &s.rows[i]
		if r.Event == nil || c.inHole(r.Event.Month(), pos) {
			continue
		}
		d := c.want[r.Event.Month()]
		for j := range r.Event.Outcomes {
			o := &r.Event.Outcomes[j]
			d.Add(b.id, catalog.Number(o.Meter).Slug, r, o)
		}
		c.want[r.Event.Month()] = d
	}
}

func (c *sliceCheck) inHole(m calendar.Month, pos journal.Position) bool {
	for _, h := range c.snapshot.Holes {
		if h.Month == m && h.Holds(pos) {
			return true
		}
	}
	return false
}

// compare says what is wrong with the slices. All records were seen.
func (c *sliceCheck) compare(going func() error, tell func(bytes int64)) error {
	if c == nil {
		return nil
	}
	got := c.snapshot.Digests()
	for m, want := range c.want {
		if got[m] != want {
			return fmt.Errorf("the slices of %s hold other rows (%d) than the journal (%d): run `tallystick rebuild`", m, got[m].Rows, want.Rows)
		}
		delete(got, m)
	}
	for m := range got {
		return fmt.Errorf("there are slices of %s, but no rows in the journal: run `tallystick rebuild`", m)
	}
	err := c.snapshot.Verify(func(bytes int64) error {
		tell(bytes)
		return going()
	})
	c.set.Report(err)
	return errors.Join(append(c.set.Damage(), err)...)
}

// Settle waits until the slices hold everything that is durable now and nothing is left to merge. Without slices there is
// nothing to wait for.
func (e *Engine) Settle(ctx context.Context) error {
	if e.slicer == nil {
		return nil
	}
	return e.slicer.settle(ctx)
}
