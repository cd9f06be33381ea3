package usage

import (
	"fmt"
	"testing"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
)

// A month by the hour of 1000 customers, in pieces as slices deliver them: one customer each, in order of time.
func BenchmarkWindows(b *testing.B) {
	const customers, rows = 1000, 10_000
	month, _ := calendar.ParseMonth("2026-11")
	cuts, _ := calendar.Cut(month.Start(), month.End(), calendar.StepHour, month.Start().Time().Location(), 1000)
	p := &Piece{}
	for i := range rows {
		p.Time = append(p.Time, month.Start()+calendar.Micros(i)*(month.End()-month.Start())/rows)
		p.Value = append(p.Value, amount.FromInt(int64(i%7)))
		p.Key = append(p.Key, Key{ClientSpace, fmt.Sprintf("request-%012d", i)})
		p.Member = append(p.Member, fmt.Sprint("member-", i%50))
		p.Resource = append(p.Resource, fmt.Sprint("model-", i%5))
		p.Properties = append(p.Properties, fmt.Sprintf(`{"region":"r%d","tier":"gold"}`, i%3))
	}
	names := make([]string, customers)
	for i := range names {
		names[i] = fmt.Sprint("customer-", i)
	}
	byCustomer := []Dimension{{Of: ByCustomer}}
	for _, c := range []struct {
		name string
		a    meter.Aggregation
		by   []Dimension
	}{
		{"sum", meter.Sum, byCustomer}, {"count", meter.Count, byCustomer}, {"max", meter.Max, byCustomer},
		{"last", meter.Last, byCustomer}, {"unique", meter.Unique, byCustomer},
		{"sum by resource", meter.Sum, []Dimension{{Of: ByResource}}},
		{"sum by property", meter.Sum, []Dimension{{ByProperty, "region"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				w := NewWindows(Grid{Cuts: cuts, Aggregation: c.a, GroupBy: c.by, MaxCells: 1 << 20,
					MaxMembers: 1 << 24, MaxCorrected: 1})
				for _, p.Customer = range names {
					if err := w.Add(p); err != nil {
						b.Fatal(err)
					}
					n += rows
				}
				for range w.All() {
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
		})
	}
}
