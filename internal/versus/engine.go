package versus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/service/registry"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
)

// tenantID names a tenant of the workload.
func tenantID(i int) string { return "tenant-" + strconv.Itoa(i) }

// populate makes the workload's tenants and meters and returns a key of each tenant.
func populate(ctx context.Context, s store.Store, w *load.Workload) (keys []string, err error) {
	r := registry.New(s, rand.Reader)
	for i := range w.Tenants() {
		_, key, err := r.CreateTenant(ctx, "versus", tenant.Tenant{ID: tenantID(i)})
		if err != nil {
			return nil, fmt.Errorf("make tenant: %w", err)
		}
		for _, slug := range w.Meters() {
			m := meter.Meter{Slug: slug, Aggregation: meter.Sum, Lateness: meter.DefaultLateness,
				Future: meter.DefaultFuture}
			if _, err := r.CreateMeter(ctx, "versus", tenantID(i), m); err != nil {
				return nil, fmt.Errorf("make meter: %w", err)
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// engineSubject is an engine in a folder of its own.
type engineSubject struct {
	w   *load.Workload
	dir string
	e   *engine.Engine
	// figures are those that the engine keeps of itself.
	figures *prometheus.Registry
}

func openEngine(ctx context.Context, b *bench, _ Cell) (subject, error) { return newEngine(ctx, b) }

func newEngine(ctx context.Context, b *bench) (*engineSubject, error) {
	s := &engineSubject{w: b.w, dir: b.folder(), figures: prometheus.NewRegistry()}
	var err error
	if s.e, err = engine.Open(engine.Options{Dir: s.dir, Metrics: s.figures, NoSlices: true}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if _, err := populate(ctx, s.e, b.w); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *engineSubject) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	var events []usage.Event
	return func(b *load.Batch) error {
		events = appendEvents(events[:0], s.w, b)
		return record(ctx, s.e, b, events)
	}, nil
}

// record hands the events over and compares the verdicts.
func record(ctx context.Context, s store.Store, b *load.Batch, events []usage.Event) error {
	verdicts, err := s.Record(ctx, store.Batch{Tenant: tenantID(b.Tenant), Events: events})
	if err != nil {
		return err
	}
	accepted, duplicates := 0, 0
	for i := range verdicts {
		switch verdicts[i].Status {
		case usage.Accepted:
			accepted++
		case usage.Duplicate:
			duplicates++
		}
	}
	if accepted+duplicates != len(b.Facts) {
		return fmt.Errorf("of %d events %d were accepted and %d duplicates", len(b.Facts), accepted, duplicates)
	}
	return expect(b, accepted)
}

// appendEvents gives the facts the form that a decoder would. All ids of a batch share one string, as they share one
// body there.
func appendEvents(events []usage.Event, w *load.Workload, b *load.Batch) []usage.Event {
	text := make([]byte, 0, len(b.Facts)*load.IDBytes)
	for i := range b.Facts {
		text = load.AppendID(text, &b.Facts[i])
	}
	ids := string(text)
	hour := calendar.FromTime(w.Hour())
	for i := range b.Facts {
		f := &b.Facts[i]
		events = append(events, usage.Event{
			ID: ids[i*load.IDBytes : (i+1)*load.IDBytes], Meter: w.Meters()[f.Meter],
			Customer: w.Customers()[f.Customer],
			Time:     hour + calendar.Micros(f.Offset*1000), Quantity: amount.FromInt(f.Quantity),
			Given: usage.GivenMeter | usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity,
		})
	}
	return events
}

func (s *engineSubject) check(ctx context.Context, streams []*load.Stream, _ sample) error {
	return checkCounters(ctx, s.e, s.w, streams, 0)
}

// checkCounters compares every counter of a store with what was sent: by the streams, and before them so many facts of
// 1 for each counter.
func checkCounters(ctx context.Context, s store.Store, w *load.Workload, streams []*load.Stream, each int64) error {
	for i := range w.Tenants() {
		totals := w.Totals(i, streams)
		left := totals.Counters()
		if each > 0 {
			left = len(w.Meters()) * len(w.Customers())
		}
		index := places(w)
		var differs error
		err := s.View(ctx, tenantID(i), func(v store.View) error {
			return v.Counters(store.CounterPlace{}, func(p store.CounterPlace, c *usage.Counter) bool {
				at, known := index[p.Meter+" "+p.Customer]
				count, sum := int64(0), int64(0)
				if known {
					count, sum = totals.Of(at.meter, at.customer)
					count, sum = count+each, sum+each
				}
				if count != c.OnTime.Count || c.Total(meter.Sum) != amount.FromInt(sum) {
					differs = fmt.Errorf("%s, meter %s, customer %s: %d events of %s, sent %d of %d", tenantID(i),
						p.Meter, p.Customer, c.OnTime.Count, c.Total(meter.Sum), count, sum)
					return false
				}
				left--
				return true
			})
		})
		if err := errors.Join(err, differs); err != nil {
			return err
		}
		if left != 0 {
			return fmt.Errorf("%s: %d counters are missing", tenantID(i), left)
		}
	}
	return nil
}

type place struct{ meter, customer int }

func places(w *load.Workload) map[string]place {
	index := make(map[string]place, len(w.Meters())*len(w.Customers()))
	for m, slug := range w.Meters() {
		for c, name := range w.Customers() {
			index[slug+" "+name] = place{m, c}
		}
	}
	return index
}

func (s *engineSubject) close() error { return errors.Join(s.e.Close(), os.RemoveAll(s.dir)) }

// figure reads one of the engine's own figures.
func (s *engineSubject) figure(name string) (float64, error) {
	families, err := s.figures.Gather()
	if err != nil {
		return 0, fmt.Errorf("gather figures: %w", err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue(), nil
		}
	}
	return 0, fmt.Errorf("the engine has no figure %s", name)
}
