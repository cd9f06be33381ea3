package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// BenchmarkRecord measures the engine alone, in process, on a real disk: b.N is events.
func BenchmarkRecord(b *testing.B) {
	for _, c := range []struct{ batch, submitters int }{{1, 1}, {1, 64}, {100, 16}, {1000, 1}, {1000, 16}} {
		b.Run(fmt.Sprintf("%dx%d", c.batch, c.submitters), func(b *testing.B) {
			e := mustOpen(b, Options{Dir: b.TempDir(), NoSlices: true})
			defer func() { _ = e.Close() }()
			if err := storetest.Create(e, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
				b.Fatal(err)
			}
			benchmarkRecord(b, e, c.batch, c.submitters)
		})
	}
}

func benchmarkRecord(b *testing.B, e *Engine, batch, submitters int) {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 10, 99_999)
	customers := make([]string, 1<<16)
	for i := range customers {
		customers[i] = "cus_" + strconv.FormatUint(zipf.Uint64(), 10)
	}
	base := calendar.FromTime(time.Now()) - 3_600_000_000
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range submitters {
		wg.Add(1)
		go func() {
			defer wg.Done()
			events := make([]usage.Event, batch)
			rng := rand.New(rand.NewPCG(1, 2))
			for {
				from := next.Add(int64(batch)) - int64(batch)
				if from >= int64(b.N) {
					return
				}
				for i := range events {
					n := from + int64(i)
					if rng.IntN(20) == 0 && n > 1000 {
						n -= 1000 // a duplicate
					}
					events[i] = usage.Event{
						ID: "evt_" + strconv.FormatInt(n, 36) + "_0123456789", Meter: "calls",
						Customer: customers[n%int64(len(customers))],
						Time:     base + calendar.Micros(n%3_000_000_000), Quantity: amount.FromInt(1 + n%5),
						Given: usage.GivenMeter | usage.GivenCustomer | usage.GivenTime | usage.GivenQuantity,
					}
				}
				if _, err := e.Record(context.Background(), store.Batch{Tenant: "acme", Events: events}); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
