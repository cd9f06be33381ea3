package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// PgGrowth measures what becomes of the PostgreSQL store as its tables grow. They are filled through the store itself:
// rows that SQL had made would lie in another order, and would leave no ledger.

// PgGrowthOptions of a run.
type PgGrowthOptions struct {
	Rows    []int64 // the stages, rising. Default 1 M and 20 M
	Measure int64   // events over which the rate is taken at each stage. Default 1 M
	Batch   int     // events of a call. Default 1000
	// Fleeting is for tests: the server does not sync.
	Fleeting bool
	// Progress takes a line now and then. Default: nobody does.
	Progress io.Writer
}

const (
	defaultPgMeasure = 1_000_000

	// maxPgRows bounds a run: more would take a day.
	maxPgRows = 1_000_000_000
	// roomPerPgRow is what a row takes with its indexes, its share of counters and the server's log.
	roomPerPgRow = 500
	// reportPgEvery is how long it takes until progress is reported again.
	reportPgEvery = 5 * time.Second
)

var defaultPgRows = []int64{1_000_000, 20_000_000}

// PgGrowthResult is what a run saw.
type PgGrowthResult struct {
	Postgres string     `json:"postgres"`
	Stages   []*PgStage `json:"stages"`
}

// PgStage is the store at one number of rows.
type PgStage struct {
	Rows            int64   `json:"rows"`
	EventsPerSecond float64 `json:"events_per_second"`
	Share           float64 `json:"share_of_first"` // of the first stage's rate
	// of the server and of this process, the making of the events included
	CPUPerEvent   float64    `json:"cpu_seconds_each"`
	BytesPerEvent float64    `json:"bytes_each"` // of all relations
	Relations     []Relation `json:"relations"`  // the largest first
}

// Relation is a table without its indexes, or an index.
type Relation struct {
	Name          string  `json:"name"`
	Index         bool    `json:"index"`
	Bytes         int64   `json:"bytes"`
	BytesPerEvent float64 `json:"bytes_each"`
}

// RunPgGrowth fills a store stage by stage and measures at each. The server and its data are gone when it returns.
func RunPgGrowth(ctx context.Context, o PgGrowthOptions) (r *PgGrowthResult, err error) {
	if o.Rows == nil {
		o.Rows = defaultPgRows
	}
	if len(o.Rows) == 0 {
		return nil, &usageError{errors.New("name a number of rows")}
	}
	setDefault(&o.Measure, defaultPgMeasure)
	setDefault(&o.Batch, defaultGrowthBatch)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	last := o.Rows[len(o.Rows)-1]
	if !slices.IsSorted(o.Rows) || o.Rows[0] < 1 || last > maxPgRows || o.Measure < 1 {
		return nil, &usageError{fmt.Errorf("rows rise from 1 to %d, and something is measured", maxPgRows)}
	}
	if err := enoughPgRoom(os.TempDir(), last+o.Measure); err != nil {
		return nil, err
	}
	b := &bench{}
	shape := load.Shape{Seed: 1, Tenants: tenants, Meters: meters, Customers: defaultCustomers / tenants,
		DuplicateRatio: duplicate}
	if b.w, err = load.NewWorkload(shape); err != nil {
		return nil, err
	}
	if b.cluster, err = startCluster(ctx, o.Fleeting); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	sub, err := openPgStore(ctx, b, Cell{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sub.close()) }()
	g := newPgGrowth(o, b.cluster, b.w)
	for _, rows := range o.Rows {
		if err := g.stage(ctx, sub, rows); err != nil {
			return nil, fmt.Errorf("at %d rows: %w", rows, err)
		}
	}
	if err := sub.check(ctx, g.streams, sample{}); err != nil {
		return nil, fmt.Errorf("check what was counted: %w", err)
	}
	return &PgGrowthResult{Postgres: b.cluster.Version(), Stages: g.stages}, nil
}

// enoughPgRoom looks before an hour is spent.
func enoughPgRoom(dir string, rows int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the disk: %w", err)
	}
	free, need := int64(fs.Bavail)*fs.Bsize, rows*roomPerPgRow+roomSpare
	if free < need {
		return fmt.Errorf("%d rows may need %d MiB, and %d MiB are free in %s: choose another folder with TMPDIR, or "+
			"fewer rows", rows, need/mebi, free/mebi, dir)
	}
	return nil
}

// pgGrowth is a run under way.
type pgGrowth struct {
	o       PgGrowthOptions
	server  *pgserver.Server
	streams []*load.Stream
	kept    atomic.Int64 // events that became rows
	stages  []*PgStage
}

func newPgGrowth(o PgGrowthOptions, server *pgserver.Server, w *load.Workload) *pgGrowth {
	g := &pgGrowth{o: o, server: server}
	for i := range growthSubmitters {
		g.streams = append(g.streams, w.NewStream(i))
	}
	return g
}

// stage fills up to a number of rows, measures over those that follow, and looks at the tables.
func (g *pgGrowth) stage(ctx context.Context, sub subject, rows int64) error {
	if _, err := g.fill(ctx, sub, rows); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, g.server.URL(storeDatabase))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // nothing of it is needed any more
	// What the filling left to be written must not be paid for by the measurement.
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	s := &PgStage{Rows: g.kept.Load(), Share: 1}
	began, used := time.Now(), familyCPU()
	sent, err := g.fill(ctx, sub, s.Rows+g.o.Measure)
	if err != nil {
		return err
	}
	s.EventsPerSecond = float64(sent) / time.Since(began).Seconds()
	s.CPUPerEvent = (familyCPU() - used).Seconds() / float64(sent)
	if len(g.stages) > 0 {
		s.Share = s.EventsPerSecond / g.stages[0].EventsPerSecond
	}
	if s.Relations, err = relations(ctx, conn, g.kept.Load()); err != nil {
		return err
	}
	for _, r := range s.Relations {
		s.BytesPerEvent += r.BytesPerEvent
	}
	g.stages = append(g.stages, s)
	fmt.Fprintf(g.o.Progress, "%d rows: %s events/s over the next %d, %.1f us of processor and %.0f bytes each\n",
		s.Rows, count(s.EventsPerSecond), g.o.Measure, 1e6*s.CPUPerEvent, s.BytesPerEvent)
	return nil
}

// fill sends events until so many became rows, and returns how many were sent.
func (g *pgGrowth) fill(ctx context.Context, sub subject, rows int64) (int64, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var sent atomic.Int64
	var submitters, reporter sync.WaitGroup
	for _, stream := range g.streams {
		submit, err := sub.submitter(ctx)
		if err != nil {
			return 0, fmt.Errorf("make submitter: %w", err)
		}
		submitters.Go(func() {
			var batch load.Batch
			for ctx.Err() == nil && g.kept.Load() < rows {
				stream.Fill(&batch, g.o.Batch)
				if err := submit(&batch); err != nil {
					stop(err)
					return
				}
				sent.Add(int64(len(batch.Facts)))
				g.kept.Add(int64(batch.Fresh))
			}
		})
	}
	done := make(chan struct{})
	reporter.Go(func() { g.report(rows, done) })
	submitters.Wait()
	close(done)
	reporter.Wait()
	return sent.Load(), context.Cause(ctx)
}

func (g *pgGrowth) report(rows int64, done <-chan struct{}) {
	ticks := time.NewTicker(reportPgEvery)
	defer ticks.Stop()
	for before := g.kept.Load(); ; {
		select {
		case <-done:
			return
		case <-ticks.C:
			now := g.kept.Load()
			fmt.Fprintf(g.o.Progress, "%d of %d rows, %s/s\n", now, rows,
				count(float64(now-before)/reportPgEvery.Seconds()))
			before = now
		}
	}
}

// relations measures the tables of the ledger and their indexes.
func relations(ctx context.Context, conn *pgx.Conn, events int64) ([]Relation, error) {
	rows, err := conn.Query(ctx,
		`SELECT relname::text, relkind = 'i',
		CASE WHEN relkind = 'i' THEN pg_relation_size(oid) ELSE pg_table_size(oid) END
		FROM pg_class WHERE relnamespace = 'tallystick'::regnamespace AND relkind IN ('r', 'i') ORDER BY 3 DESC, 1`)
	if err != nil {
		return nil, fmt.Errorf("measure the tables: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Relation, err error) {
		err = row.Scan(&r.Name, &r.Index, &r.Bytes)
		r.BytesPerEvent = float64(r.Bytes) / float64(events)
		return r, err
	})
}
