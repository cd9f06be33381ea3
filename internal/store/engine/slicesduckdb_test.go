package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// Given slices of several tenants with corrections and late facts, when DuckDB, which shares no code with what wrote
// them, reads the files, then it counts the same rows and sums to the last digit.
func TestDuckDBReadsTheSameSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	clock, dir := storetest.NewClock(), t.TempDir()
	o := eager(vfs.Default, clock.Now)
	o.Dir = dir
	e := mustOpen(t, o)
	for part := range 10 {
		busy(t, e, rng, fmt.Sprint("part", part), 8)
		clock.Advance(40 * time.Hour)
		if err := e.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	want := sumsOf(t, e)
	mustEnd(t, e)
	got := duckdb(t, fmt.Sprintf(`
		select tenant, meter, customer, month, count(*)::varchar, sum(value)::decimal(38,12)::varchar,
		       count(*) filter (corrects <> '')::varchar, count(*) filter (why <> 'on_time')::varchar,
		       min(epoch_us(time))::varchar, max(seq)::varchar,
		       bool_and(strftime(time at time zone 'UTC', '%%Y-%%m') = month)::varchar
		from '%s/slices/*.parquet' group by tenant, meter, customer, month`, dir))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("DuckDB reads\n%s\nthe store\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(want) < 6 {
		t.Errorf("only %d counters to compare", len(want))
	}
}

// sumsOf is what the query asks DuckDB, from the store's rows.
func sumsOf(t *testing.T, e *Engine) (out []string) {
	t.Helper()
	type name struct {
		meter, customer string
		month           calendar.Month
	}
	type sums struct {
		rows, corrections, late int
		sum                     amount.Amount
		first                   calendar.Micros
		last                    uint64
	}
	for _, id := range crashTenants {
		all := map[name]*sums{}
		err := e.View(context.Background(), id, func(v store.View) error {
			for i, m := range crashMeters() {
				rows, err := sliceRows(func(q store.SliceQuery,
					fn func(*store.Slice) error) error {
					return store.ScanSlice(v, q, fn)
				},
					store.SliceQuery{Meter: uint32(i + 1), To: calendar.MaxMicros})
				if err != nil {
					return err
				}
				for _, r := range rows {
					n := name{m.Slug, r.customer, calendar.MonthOf(r.time)}
					s := all[n]
					if s == nil {
						s = &sums{first: r.time}
						all[n] = s
					}
					s.rows++
					s.sum, _ = s.sum.Add(r.value)
					s.first, s.last = min(s.first, r.time), max(s.last, r.seq)
					if r.corrects != "" {
						s.corrections++
					}
					if r.why != 0 {
						s.late++
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for n, s := range all {
			out = append(out, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\ttrue", id, n.meter, n.customer,
				n.month, s.rows, twelveDecimals(s.sum), s.corrections, s.late, s.first, s.last))
		}
	}
	return out
}

// twelveDecimals writes all of them, as SQL does.
func twelveDecimals(a amount.Amount) string {
	whole, fraction, _ := strings.Cut(a.String(), ".")
	return whole + "." + fraction + strings.Repeat("0", amount.Decimals-len(fraction))
}

// duckdb runs a query in the command of its own module, which go builds once.
func duckdb(t *testing.T, query string) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "run", ".", query)
	c.Dir = filepath.Join("slice", "testdata", "duckdb")
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("duckdb: %v: %s", err, errs.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
