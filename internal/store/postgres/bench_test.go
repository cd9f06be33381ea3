package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tallystick/tallystick/internal/core/calendar"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/tenant"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// The benchmarks run the store beside what a careful team would write by hand, on a server that syncs its disk: exact
// dedupe with one duplicate in twenty, a row and a counter for each event. Compare the lines of one run; the machine
// decides the rest.
//
//	go test -run '^$' -bench . ./internal/store/postgres

// durable settings of a server whose commits survive the machine.
var durable = []string{"fsync=on", "full_page_writes=on", "max_wal_size=4GB", "shared_buffers=512MB"}

const benchCustomers = 500

// stream makes events that no other stream makes, one in twenty of them for the second time.
type stream struct {
	random *rand.Rand
	name   uint64
	n      int
	now    calendar.Micros
}

func newStream() *stream {
	name := rand.Uint64()
	return &stream{random: rand.New(rand.NewPCG(name, 0)), name: name, now: calendar.FromTime(time.Now())}
}

func (s *stream) events(n int) []usage.Event {
	out := make([]usage.Event, n)
	for i := range out {
		s.n++
		out[i] = s.event(s.n)
		if s.n%20 == 0 {
			out[i] = s.event(1 + s.random.IntN(s.n))
		}
	}
	return out
}

// event is the event of that number, always the same.
func (s *stream) event(n int) usage.Event {
	at := s.now.Add(-time.Duration(n%3600) * time.Millisecond)
	return storetest.Fact(fmt.Sprintf("evt_%016x_%08d", s.name, n), "calls",
		fmt.Sprint("customer-", n*31%benchCustomers), at, "1")
}

// submit has so many submitters deliver b.N events in batches, and reports the rate.
func submit(b *testing.B, submitters, batch int, deliver func([]usage.Event) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	streams := make([]*stream, submitters)
	for i := range streams {
		streams[i] = newStream()
	}
	b.ResetTimer()
	for i := range submitters {
		wg.Go(func() {
			for left.Add(-int64(batch)) > -int64(batch) {
				if err := deliver(streams[i].events(batch)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkBatches(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		url := benchURL(b)
		submit(b, 16, 1000, storeOn(b, url))
		b.ReportMetric(bytesPerRow(b, url), "bytes/event")
	})
	b.Run("handwritten", func(b *testing.B) { submit(b, 16, 1000, coalescedOn(b, 2)) })
}

func BenchmarkSingles(b *testing.B) {
	b.Run("store", func(b *testing.B) { submit(b, 64, 1, storeOn(b, benchURL(b))) })
	b.Run("one-transaction-per-event", func(b *testing.B) { submit(b, 64, 1, handwritten(b, 64).insert) })
}

func benchURL(b *testing.B) string {
	s := pgtest.Private(b, durable...)
	url, err := s.Create("")
	if err != nil {
		b.Fatal(err)
	}
	return url
}

// bytesPerRow is what a usage row takes, with its indexes.
func bytesPerRow(b *testing.B, url string) (bytes float64) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	const query = "SELECT pg_total_relation_size('tallystick.usage_events')::float8 / count(*) FROM " +
		"tallystick.usage_events"
	if err := conn.QueryRow(ctx, query).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}

func storeOn(b *testing.B, url string) func([]usage.Event) error {
	s := mustOpen(b, Options{URL: url})
	b.Cleanup(func() { mustClose(b, s) })
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		b.Fatal(err)
	}
	by := tenant.NewKeyID("acme", [10]byte{1})
	return func(events []usage.Event) error {
		_, err := s.Record(context.Background(), store.Batch{Tenant: "acme", By: by, Events: events})
		return err
	}
}

// reference is the hand-written way: set-based, exact, without rules, walls, order or tree.
type reference struct{ pool *pgxpool.Pool }

func handwritten(b *testing.B, conns int) *reference {
	url := benchURL(b)
	err := pgtest.Exec(url,
		`CREATE TABLE events (tenant text NOT NULL, key text NOT NULL, meter text NOT NULL, customer text NOT NULL,
			time timestamptz NOT NULL, quantity numeric(38,12) NOT NULL, at timestamptz NOT NULL DEFAULT now(),
			PRIMARY KEY (tenant, key));
		CREATE TABLE counters (tenant text NOT NULL, meter text NOT NULL, customer text NOT NULL, month date NOT NULL,
			count bigint NOT NULL, sum numeric(38,12) NOT NULL, PRIMARY KEY (tenant, meter, customer, month))`)
	if err != nil {
		b.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return &reference{pool}
}

const insertByHand = `WITH new AS (
	INSERT INTO events (tenant, key, meter, customer, time, quantity)
	SELECT 'acme', * FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::numeric[])
	ON CONFLICT (tenant, key) DO NOTHING RETURNING key, meter, customer, time, quantity
), counted AS (
	INSERT INTO counters (tenant, meter, customer, month, count, sum)
	SELECT 'acme', meter, customer, date_trunc('month', time), count(*), sum(quantity) FROM new
	GROUP BY 1, 2, 3, 4 ORDER BY 2, 3, 4
	ON CONFLICT (tenant, meter, customer, month) DO UPDATE
		SET count = counters.count + excluded.count, sum = counters.sum + excluded.sum
) SELECT key FROM new`

// insert writes the events in one transaction.
func (r *reference) insert(events []usage.Event) error {
	n := len(events)
	keys, meters, customers, times, quantities := make([]string, n), make([]string, n), make([]string, n),
		make([]time.Time, n), make([]int64, n)
	for i := range events {
		e := &events[i]
		keys[i], meters[i], customers[i], times[i], quantities[i] = e.ID, e.Meter, e.Customer, e.Time.Time(), 1
	}
	rows, err := r.pool.Query(context.Background(), insertByHand, keys, meters, customers, times, quantities)
	if err != nil {
		return err
	}
	fresh := make(map[string]bool, n)
	for rows.Next() {
		fresh[string(rows.RawValues()[0])] = true
	}
	return rows.Err()
}

// coalescedOn has waiting batches go together, on so many connections.
func coalescedOn(b *testing.B, conns int) func([]usage.Event) error {
	r := handwritten(b, conns)
	type waiting struct {
		events []usage.Event
		done   chan error
	}
	queue := make(chan waiting, 64)
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for w := range queue {
				group, all := []waiting{w}, w.events
				for more := true; more && len(all) < maxGroup/2; {
					select {
					case w, ok := <-queue:
						if !ok {
							more = false
							break
						}
						group, all = append(group, w), append(all[:len(all):len(all)], w.events...)
					default:
						more = false
					}
				}
				err := r.insert(all)
				for _, w := range group {
					w.done <- err
				}
			}
		})
	}
	b.Cleanup(func() { close(queue); wg.Wait() })
	return func(events []usage.Event) error {
		w := waiting{events, make(chan error, 1)}
		queue <- w
		return <-w.done
	}
}
