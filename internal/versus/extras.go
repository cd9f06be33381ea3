package versus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/store"
)

// Disk is what the ledger and its index of keys take.
type Disk struct {
	Events          int64   `json:"events"`
	JournalPerEvent float64 `json:"journal_bytes_per_event"`
	KeysPerEvent    float64 `json:"keys_bytes_per_event"`
}

// The engine's own names.
const (
	keysFolder    = "keys"
	journalFigure = "tallystick_engine_journal_bytes"
)

// diskPerEvent fills an engine with groups of at least 100 events and looks at its folder. The journal reports its own
// size: its last segment is preallocated.
func (b *bench) diskPerEvent(ctx context.Context, events int64) (d *Disk, err error) {
	s, err := newEngine(ctx, b)
	if err != nil {
		return nil, err
	}
	const groupOf, submitters = 100, 16
	sent, streams, err := b.drive(ctx, s, groupOf, submitters, events, time.Hour)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	var kept int64
	for i := range b.w.Tenants() {
		kept += b.w.Totals(i, streams).Events
	}
	journal, err := s.figure(journalFigure)
	if err = errors.Join(err, s.e.Close()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	keys, err := folderBytes(filepath.Join(s.dir, keysFolder))
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		return nil, err
	}
	return &Disk{Events: sent.events, JournalPerEvent: journal / float64(kept),
		KeysPerEvent: float64(keys) / float64(kept)}, nil
}

// folderBytes adds up the files of a folder. One that a merge removes meanwhile counts no more.
func folderBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	return sum, err
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Reads is how long a counter takes to read after the write that changed it.
type Reads struct {
	Reads   int          `json:"reads"`
	Latency load.Latency `json:"latency_us"`
}

// readBack writes one event and reads its counter, over and over. Every read must show the write.
func (b *bench) readBack(ctx context.Context, reads int) (r *Reads, err error) {
	s, err := newEngine(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	submit, err := s.submitter(ctx)
	if err != nil {
		return nil, err
	}
	stream := b.w.NewStream(0)
	seen := map[[3]int]usage.Fold{}
	var h load.Histogram
	var batch load.Batch
	for range reads {
		stream.Fill(&batch, 1)
		if err := submit(&batch); err != nil {
			return nil, err
		}
		f := &batch.Facts[0]
		at := [3]int{batch.Tenant, f.Meter, f.Customer}
		want := seen[at]
		if batch.Fresh == 1 {
			want.Count++
			want.Sum, _ = want.Sum.Add(amount.FromInt(f.Quantity)) // far from any bound
			seen[at] = want
		}
		began := time.Now()
		got, err := s.counter(ctx, batch.Tenant, f)
		if err != nil {
			return nil, err
		}
		h.Add(time.Since(began))
		if got.OnTime.Count != want.Count || got.OnTime.Sum != want.Sum {
			return nil, fmt.Errorf("a read after a write shows %d events of %s, want %d of %s", got.OnTime.Count,
				got.OnTime.Sum, want.Count, want.Sum)
		}
	}
	return &Reads{Reads: reads, Latency: load.LatencyOf(&h)}, nil
}

func (s *engineSubject) counter(ctx context.Context, tenant int, f *load.Fact) (c usage.Counter, err error) {
	err = s.e.View(ctx, tenantID(tenant), func(v store.View) error {
		m, err := store.GetMeter(v, s.w.Meters()[f.Meter])
		if err != nil {
			return err
		}
		c, err = v.Counter(usage.CounterID{Meter: m.Number, Customer: s.w.Customers()[f.Customer],
			Month: calendar.MonthOf(calendar.FromTime(s.w.Hour()))})
		return err
	})
	return c, err
}
