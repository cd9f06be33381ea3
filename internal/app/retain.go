package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/edge/archive"
	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/service/retention"
	"github.com/tallystick/tallystick/internal/store"
)

// check says what is wrong with the settings.
func (r *RetentionSettings) check() error {
	switch {
	case r.Horizon == 0:
		return nil
	case r.Horizon < retention.MinHorizon:
		return fmt.Errorf("retention.horizon: %s is shorter than %s (95 days)", r.Horizon, retention.MinHorizon)
	case r.Archive == "":
		return errors.New("retention.archive: name a folder or s3://bucket/prefix: nothing leaves the ledger that is " +
			"not archived")
	}
	return nil
}

// storage opens the archive; nil when there is none.
func (r *RetentionSettings) storage(ctx context.Context) (retention.Storage, error) {
	switch {
	case r.Archive == "":
		return nil, nil
	case archive.IsBucket(r.Archive):
		who, err := archive.FindCredentials(ctx, archive.FindOptions{Region: r.Region})
		if err != nil {
			return nil, err
		}
		b, err := archive.NewBucket(archive.BucketOptions{Location: r.Archive, Endpoint: r.Endpoint, Region: r.Region,
			Credentials: who})
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return b, nil
	}
	f, err := archive.NewFolder(r.Archive)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// retain is the server's own run.
func (s *Server) retain(ctx context.Context) (int, error) {
	report, err := retention.New(s.store, s.storage).Run(ctx, retention.Options{Horizon: s.settings.Retention.Horizon})
	return int(report.Pruned), err
}

func newRetainCommand() *cobra.Command {
	var from place
	var o RetentionSettings
	var dryRun, asJSON bool
	var restore string
	c := &cobra.Command{
		Use:   "retain",
		Short: "Archive months beyond a horizon, prove the archive, and prune them",
		Long: `Moves the floor below which facts are refused, writes every closed month below it to an archive, reads
the archive back and compares it with the ledger row by row, and only then takes the rows away. Counters,
totals, periods and adjustments of those months stay. A run that broke off is repeated.

Look first: --dry-run says what would leave and changes nothing. --restore reads ledger and archive together
into an empty store that holds everything again. An embedded store must not be served meanwhile.`,
		Example: `  tallystick retain --data ./data --horizon 2280h --archive ./archive --dry-run
  tallystick retain --store postgres://tallystick@db.internal/ledger --horizon 8760h --archive s3://backup/ledger
  tallystick retain --data ./data --archive ./archive --restore ./whole`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			switch {
			case o.Archive == "":
				return wrongUse("name a folder or s3://bucket/prefix with --archive")
			case restore != "" && (dryRun || o.Horizon != 0):
				return wrongUse("--restore takes neither --horizon nor --dry-run")
			case restore == "" && o.Horizon < retention.MinHorizon:
				return wrongUse("--horizon is at least %s (95 days)", retention.MinHorizon)
			}
			storage, err := o.storage(c.Context())
			if err != nil {
				return err
			}
			s, err := from.open(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Close()) }()
			heap.Tune()
			if restore != "" {
				return restoreAll(c, retention.NewReading(s, storage), restore, asJSON)
			}
			return retainNow(c, s, storage, retention.Options{Horizon: o.Horizon, DryRun: dryRun}, asJSON)
		},
	}
	from.flags(c)
	c.Flags().DurationVar(&o.Horizon, "horizon", 0, "how far back rows are kept, for example 2280h")
	c.Flags().StringVar(&o.Archive, "archive", "",
		"a folder, or s3://bucket/prefix with the usual sources of AWS credentials")
	c.Flags().StringVar(&o.Endpoint, "endpoint", "", "server of the bucket, https://host; default: Amazon's")
	c.Flags().StringVar(&o.Region, "region", "us-east-1", "region of the bucket")
	c.Flags().StringVar(&restore, "restore", "",
		"fill this empty `STORE`, a directory or postgres://…, with everything, archived or not")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would leave and change nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

func retainNow(c *cobra.Command, s store.Store, storage retention.Storage, o retention.Options, asJSON bool) error {
	bars := map[string]*progressBar{}
	o.Progress = func(step string, done, total uint64) {
		if bars[step] == nil {
			bars[step] = progressFor(c, asJSON)(step)
		}
		bars[step].set(done, total)
	}
	report, err := retention.New(s, storage).Run(c.Context(), o)
	for _, b := range bars {
		b.end()
	}
	if err != nil {
		return fmt.Errorf("retain: %w", err)
	}
	if asJSON {
		return printJSON(c.OutOrStdout(), retainedJSON(&report, o.DryRun))
	}
	would := ""
	if o.DryRun {
		would = "would be "
	}
	for _, m := range report.Months {
		if m.Waits != "" {
			fmt.Fprintf(c.OutOrStdout(), "%s %s: %s not archived yet: %s\n", m.Tenant, m.Month, counted(m.Rows, "row"),
				m.Waits)
			continue
		}
		fmt.Fprintf(c.OutOrStdout(), "%s %s: %s %sarchived, %d of them %spruned\n", m.Tenant, m.Month,
			counted(m.Rows, "row"), would, m.Rows-m.Stay, would)
	}
	if o.DryRun {
		fmt.Fprintf(c.OutOrStdout(), "dry run: nothing was changed; the floor would be %s\n", report.Floor)
		return nil
	}
	fmt.Fprintf(c.OutOrStdout(), "ok: the floor is %s; %s pruned\n", report.Floor, counted(report.Pruned, "row"))
	return nil
}

// monthJSON is one line of the result.
type monthJSON struct {
	Tenant string `json:"tenant"`
	Month  string `json:"month"`
	Rows   uint64 `json:"rows"`
	Leave  uint64 `json:"leave"`
	Bytes  int64  `json:"bytes"`
	Waits  string `json:"waits,omitempty"`
}

func retainedJSON(r *retention.Report, dryRun bool) any {
	months := make([]monthJSON, 0, len(r.Months))
	for _, m := range r.Months {
		months = append(months, monthJSON{m.Tenant, m.Month.String(), m.Rows, m.Rows - m.Stay, m.Bytes, m.Waits})
	}
	return struct {
		DryRun bool        `json:"dry_run"`
		Floor  time.Time   `json:"floor"`
		Pruned uint64      `json:"pruned"`
		Months []monthJSON `json:"months"`
	}{dryRun, r.Floor.Time(), r.Pruned, months}
}

// restoreAll fills an empty store with what ledger and archive hold together.
func restoreAll(c *cobra.Command, from store.Store, name string, asJSON bool) (err error) {
	to, err := openEnd(c.Context(), name, exitOn(c.ErrOrStderr()))
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	bar := progressFor(c, asJSON)
	rows := bar("restoring")
	moved, err := move.Run(c.Context(), from, to, move.Options{Progress: rows.set})
	rows.end()
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	report, err := recount(c.Context(), to, bar)
	if err == nil && !report.OK() {
		err = fmt.Errorf("what was restored differs from its own ledger in %s, the first: %s",
			counted(report.Found, "place"), report.Differences[0])
	}
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(c.OutOrStdout(), struct {
			OK      bool   `json:"ok"`
			Tenants int    `json:"tenants"`
			Rows    uint64 `json:"rows"`
		}{true, moved.Tenants, moved.Rows})
	}
	fmt.Fprintf(c.OutOrStdout(), "ok: restored %s of %s, with their trees\n", counted(moved.Rows, "row"),
		counted(moved.Tenants, "tenant"))
	return nil
}
