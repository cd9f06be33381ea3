package versus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/versus/kafkaserver"
)

// Sinks measures what carrying rows out takes from ingest, how fast each kind of sink gets rows, and how long they take
// to catch up with a burst. The server is tallystick serve in a process of its own, on a new store for every
// measurement; the generator, the webhook's receiver and the broker run beside it on the same processors, so what they
// use is missing to the server: the shares are the least that a server with its own machine has.

// SinksOptions of a run.
type SinksOptions struct {
	Store    string // engine or postgres. Default engine
	Fleeting bool   // a PostgreSQL that keeps nothing, for tests
	// Kafka runs already, and goes on; for tests, which share one. Default: a private one
	Kafka       *kafkaserver.Server
	Repetitions int           // of each measurement but the burst, interleaved. Default 5
	Time        time.Duration // of ingest, without sinks and with them. Default 3 s
	Connections int           // of ingest. Default 16
	Rows        int64         // that each kind of sink alone is measured with. Default 200,000
	Burst       int64         // rows. Default 1 M
	Batch       int           // rows of a delivery, at most 1000. Default 1000
	NATS        string        // URL of a server with JetStream; empty: NATS is left out
	Patience    time.Duration // for one kind of sink to get all rows; a run that takes longer fails. Default 10 min
	Dir         string        // default: a temporary folder
	// Progress takes a line per measurement. Default: nobody does.
	Progress io.Writer
}

const (
	defaultSinkRuns     = 5
	defaultSinkTime     = 3 * time.Second
	defaultSinkRows     = 200_000
	defaultSinkBurst    = 1_000_000
	defaultSinkBatch    = 1000
	defaultSinkPatience = 10 * time.Minute

	defaultSinkConnections = 16
	ingestBatch            = 1000

	// countEvery is how often a receiver is asked how much it has.
	countEvery = 10 * time.Millisecond
)

// Sinks is what a run saw: medians over the repetitions.
type Sinks struct {
	Store       string     `json:"store"`
	Connections int        `json:"connections"`
	Batch       int        `json:"rows_of_a_delivery"`
	Ingest      SinkIngest `json:"ingest"`
	Kinds       []SinkKind `json:"sinks"`
	Rows        int64      `json:"rows_of_each_alone"`
	Burst       int64      `json:"burst_rows"`
	Targets     []Target   `json:"targets"`
}

// SinkIngest is ingest without sinks and with a webhook and a Kafka sink.
type SinkIngest struct {
	Without   float64   `json:"events_per_second_without_sinks"`
	With      float64   `json:"events_per_second_with_sinks"`
	Ratios    []float64 `json:"ratios"` // of each repetition: what the machine did to it, it did to both
	Ratio     float64   `json:"ratio"`
	Delivered float64   `json:"rows_per_second_delivered_meanwhile"` // by both
}

// SinkKind is one kind of sink.
type SinkKind struct {
	Name          string    `json:"name"`
	RowsPerSecond []float64 `json:"rows_per_second"` // alone, without ingest
	Median        float64   `json:"median_rows_per_second"`
	Lag           float64   `json:"seconds_behind_a_burst"` // from the last answer of ingest, all kinds attached
}

// RunSinks measures.
func RunSinks(ctx context.Context, o SinksOptions) (_ *Sinks, err error) {
	setDefault(&o.Store, engineStore)
	setDefault(&o.Repetitions, defaultSinkRuns)
	setDefault(&o.Time, defaultSinkTime)
	setDefault(&o.Connections, defaultSinkConnections)
	setDefault(&o.Rows, defaultSinkRows)
	setDefault(&o.Burst, defaultSinkBurst)
	setDefault(&o.Batch, defaultSinkBatch)
	setDefault(&o.Patience, defaultSinkPatience)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "tallystick-sinks-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the stores: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &sinksRun{options: o, bench: bench{dir: dir},
		result: &Sinks{Store: o.Store, Connections: o.Connections, Batch: o.Batch, Rows: o.Rows, Burst: o.Burst}}
	if r.w, err = load.NewWorkload(load.Shape{Seed: 1, Meters: meters, Customers: 1000,
		DuplicateRatio: duplicate}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	if err := r.measureAll(ctx); err != nil {
		return nil, err
	}
	r.result.judge()
	return r.result, nil
}

// sinksRun is a run under way.
type sinksRun struct {
	bench
	options SinksOptions
	outlets []outlet // webhook, Kafka, and NATS if there is one
	places  int      // opened so far, to name them
	result  *Sinks
}

// attachedToIngest are the first outlets: the target speaks of a webhook and a Kafka sink.
const attachedToIngest = 2

// start starts what is there for the whole run.
func (r *sinksRun) start(ctx context.Context) (err error) {
	hook, err := startHook(ctx)
	if err != nil {
		return err
	}
	r.outlets = append(r.outlets, hook)
	kafka, err := startKafka(r.options.Kafka)
	if err != nil {
		return err
	}
	r.outlets = append(r.outlets, kafka)
	if r.options.NATS != "" {
		n, err := connectNATS(r.options.NATS)
		if err != nil {
			return err
		}
		r.outlets = append(r.outlets, n)
	}
	for _, o := range r.outlets {
		r.result.Kinds = append(r.result.Kinds, SinkKind{Name: o.name()})
	}
	if r.options.Store == postgresStore {
		r.cluster, err = startCluster(ctx, r.options.Fleeting)
	}
	return err
}

func (r *sinksRun) stop() (err error) {
	for _, o := range r.outlets {
		err = errors.Join(err, o.close())
	}
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	return err
}

// measureAll interleaves: what is compared is measured in every repetition before the next begins.
func (r *sinksRun) measureAll(ctx context.Context) error {
	var without, with, delivered []float64
	for i := range r.options.Repetitions {
		plain, _, err := r.ingest(ctx, nil)
		if err != nil {
			return fmt.Errorf("ingest without sinks: %w", err)
		}
		beside, rows, err := r.ingest(ctx, r.outlets[:attachedToIngest])
		if err != nil {
			return fmt.Errorf("ingest with sinks: %w", err)
		}
		without, with, delivered = append(without, plain), append(with, beside), append(delivered, rows)
		r.result.Ingest.Ratios = append(r.result.Ingest.Ratios, beside/plain)
		fmt.Fprintf(r.options.Progress, "%d/%d  ingest %s/s without sinks, %s/s with, which got %s rows/s meanwhile\n",
			i+1, r.options.Repetitions, count(plain), count(beside), count(rows))
		for k := range r.outlets {
			rate, err := r.alone(ctx, r.outlets[k])
			if err != nil {
				return fmt.Errorf("%s alone: %w", r.outlets[k].name(), err)
			}
			kind := &r.result.Kinds[k]
			kind.RowsPerSecond = append(kind.RowsPerSecond, rate)
			kind.Median = median(kind.RowsPerSecond)
			fmt.Fprintf(r.options.Progress, "%d/%d  %s alone %s rows/s\n", i+1, r.options.Repetitions, kind.Name,
				count(rate))
		}
	}
	n := &r.result.Ingest
	n.Without, n.With, n.Delivered = median(without), median(with), median(delivered)
	n.Ratio = median(n.Ratios)
	if err := r.burst(ctx); err != nil {
		return fmt.Errorf("burst: %w", err)
	}
	return nil
}

// place names a new place at all outlets.
func (r *sinksRun) place() string {
	r.places++
	return "tallystick-versus-" + strconv.Itoa(r.places)
}

// ingest sends for a while to a server with sinks, or without. It returns events per second, and rows that the sinks
// had got by the last answer.
func (r *sinksRun) ingest(ctx context.Context, to []outlet) (events, rows float64, err error) {
	s, err := startSinksServer(ctx, &r.bench, r.options.Store)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	place := r.place()
	for _, o := range to {
		if err := s.attach(ctx, o, place, r.options.Batch); err != nil {
			return 0, 0, err
		}
	}
	sent, _, err := r.drive(ctx, s, ingestBatch, r.options.Connections, math.MaxInt64, r.options.Time)
	if err != nil {
		return 0, 0, err
	}
	for _, o := range to {
		got, err := o.rows(ctx)
		if err != nil {
			return 0, 0, err
		}
		rows += float64(got) / sent.elapsed.Seconds()
	}
	return sent.eventsPerSecond(), rows, nil
}

// alone fills a ledger, attaches one sink and measures how fast it gets all rows.
func (r *sinksRun) alone(ctx context.Context, to outlet) (rate float64, err error) {
	s, err := startSinksServer(ctx, &r.bench, r.options.Store)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rows, err := r.fill(ctx, s, r.options.Rows)
	if err != nil {
		return 0, err
	}
	if err := s.attach(ctx, to, r.place(), r.options.Batch); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := r.until(ctx, to, rows); err != nil {
		return 0, err
	}
	return float64(rows) / time.Since(began).Seconds(), nil
}

// fill sends so many events as fast as it can, and returns how many rows they became.
func (r *sinksRun) fill(ctx context.Context, s *sinksServer, events int64) (rows int64, err error) {
	_, streams, err := r.drive(ctx, s, ingestBatch, r.options.Connections, events, r.options.Patience)
	for _, stream := range streams {
		rows += int64(stream.Drawn(0))
	}
	return rows, err
}

// until waits until a receiver has so many rows.
func (r *sinksRun) until(ctx context.Context, o outlet, rows int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	for {
		got, err := o.rows(ctx)
		if err != nil {
			return err
		}
		if got >= rows {
			return nil
		}
		if !sleep(ctx, countEvery) {
			return fmt.Errorf("%s has %d of %d rows after %s: %w", o.name(), got, rows, r.options.Patience, ctx.Err())
		}
	}
}

// burst sends a burst to a server with a sink of every kind and measures how long after its last answer each has all
// rows.
func (r *sinksRun) burst(ctx context.Context) (err error) {
	s, err := startSinksServer(ctx, &r.bench, r.options.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	place := r.place()
	for _, o := range r.outlets {
		if err := s.attach(ctx, o, place, r.options.Batch); err != nil {
			return err
		}
	}
	rows, err := r.fill(ctx, s, r.options.Burst)
	if err != nil {
		return err
	}
	last := time.Now()
	done := make(chan error, len(r.outlets))
	for i, o := range r.outlets {
		go func() {
			err := r.until(ctx, o, rows)
			r.result.Kinds[i].Lag = time.Since(last).Seconds()
			done <- err
		}()
	}
	for range r.outlets {
		err = errors.Join(err, <-done)
	}
	return err
}

func (r *Sinks) judge() {
	r.Targets = []Target{newTarget("ingest with a webhook and a Kafka sink attached, "+r.Store+" store",
		">= 80% of without", "", bound{value: r.Ingest.Ratio, must: 0.8, show: showShare("without")})}
}

// Print writes the table for people.
func (r *Sinks) Print(w io.Writer) {
	n := r.Ingest
	fmt.Fprintf(w, "\n%s store, deliveries of at most %d rows; receivers and generator on the same processors\n",
		r.Store, r.Batch)
	fmt.Fprintf(w, "ingest, batches of %d, connections %d: %s events/s without sinks, %s with a webhook and a Kafka "+
		"sink (%.0f%%), which got %s rows/s meanwhile\n\n", ingestBatch, r.Connections, count(n.Without),
		count(n.With), 100*n.Ratio, count(n.Delivered))
	fmt.Fprintf(w, "%-10s %22s %36s\n", "", "alone, "+count(float64(r.Rows))+" events",
		"behind a burst of "+count(float64(r.Burst))+" events")
	for _, k := range r.Kinds {
		fmt.Fprintf(w, "%-10s %15s rows/s %34.1f s\n", k.Name, count(k.Median), k.Lag)
	}
	fmt.Fprintln(w)
	printTargets(w, r.Targets)
}
