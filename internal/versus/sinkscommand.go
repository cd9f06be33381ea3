package versus

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/core/sink"
)

func newSinksCommand(dir, file *string) *cobra.Command {
	var o SinksOptions
	c := &cobra.Command{
		Use:   "sinks",
		Short: "Measure what sinks take from ingest, how fast they get rows, and how far a burst leaves them behind",
		Long: `Measures ingest over HTTP, batches of 1000 over --connections, in turns without a sink and with a webhook
and a Kafka sink attached; how fast each kind of sink alone gets the rows of a ledger; and how long after
a burst each has all of it, with a sink of every kind attached. The webhook's receiver answers at once, over plain
HTTP and so over a new connection for every delivery. Kafka is a private one, which make deps installs into the
checkout that this runs in. NATS is measured on a server with JetStream that --nats names; the streams that are made
there are removed. All of it runs on this machine, beside the server.`,
		Example: `  tallystick-versus sinks --repetitions 3
  tallystick-versus sinks --store postgres --burst 200000
  tallystick-versus sinks --nats nats://127.0.0.1:4222`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Repetitions < 1 || o.Time <= 0 || o.Connections < 1 || o.Rows < 1 || o.Burst < 1 || o.Patience <= 0 {
				return &usageError{errors.New("--repetitions, --time, --connections, --rows, --burst and --patience " +
					"must be more than 0")}
			}
			if o.Batch < 1 || o.Batch > sink.MaxBatch {
				return &usageError{fmt.Errorf("--batch %d: it is 1 to %d", o.Batch, sink.MaxBatch)}
			}
			if o.Store != engineStore && o.Store != postgresStore {
				return &usageError{fmt.Errorf("--store %q: it is engine or postgres", o.Store)}
			}
			o.Dir, o.Progress = *dir, c.ErrOrStderr()
			r, err := RunSinks(c.Context(), o)
			if err != nil {
				return err
			}
			r.Print(c.OutOrStdout())
			return writeJSON(*file, r)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Store, "store", engineStore, "engine, or postgres on a private server")
	f.IntVar(&o.Repetitions, "repetitions", defaultSinkRuns, "of each measurement but the burst, interleaved")
	f.DurationVar(&o.Time, "time", defaultSinkTime, "of ingest, without sinks and with them")
	f.IntVar(&o.Connections, "connections", defaultSinkConnections, "of ingest")
	f.Int64Var(&o.Rows, "rows", defaultSinkRows, "events that each kind of sink alone is measured with")
	f.Int64Var(&o.Burst, "burst", defaultSinkBurst, "events of the burst")
	f.IntVar(&o.Batch, "batch", defaultSinkBatch, "rows of a delivery; sinks that do not ask for more have 100")
	f.StringVar(&o.NATS, "nats", "", "URL of a NATS server with JetStream (default: NATS is left out)")
	f.DurationVar(&o.Patience, "patience", defaultSinkPatience,
		"for a sink to get all rows: a run that takes longer fails")
	return c
}
