package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

func newRebuildCommand() *cobra.Command {
	var data, url string
	var asJSON bool
	c := &cobra.Command{
		Use:   "rebuild",
		Short: "Drop derived data and make it again from the ledger",
		Long: `Moves the derived files of an embedded store that no server has open aside, makes them again from the
journal, and removes the old ones. The journal itself is only read. Of a database, whose counters are part of every
commit, the hours that charts are made of are dropped and added up again; servers may go on meanwhile.`,
		Example: `  tallystick rebuild --data ./data && tallystick verify --data ./data
  tallystick rebuild --store postgres://tallystick@db.internal/ledger`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			r := rebuilding{out: c.OutOrStdout(), bar: progressFor(c, asJSON), asJSON: asJSON, began: time.Now()}
			switch {
			case isDatabase(url):
				return r.database(c.Context(), url)
			case url != embedded:
				return wrongUse("--store is embedded, with --data, or postgres://…")
			}
			if err := mustHoldStore(data); err != nil {
				return err
			}
			heap.Tune()
			return r.embedded(data, exitOn(c.ErrOrStderr()))
		},
	}
	c.Flags().StringVar(&data, "data", "./data", "directory of the embedded store")
	c.Flags().StringVar(&url, "store", embedded, "where the ledger is kept: embedded, or postgres://…")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

// rebuilding is the command under way.
type rebuilding struct {
	out    io.Writer
	bar    func(string) *progressBar
	asJSON bool
	began  time.Time
}

func (r *rebuilding) embedded(data string, fatal func(error)) error {
	bar, bytes := r.bar("rebuilding"), int64(0)
	err := engine.Rebuild(engine.Options{Dir: data, Fatal: fatal, Progress: func(done, total int64) {
		bytes = done
		bar.bytes(done, total)
	}})
	bar.end()
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", data, err)
	}
	took := time.Since(r.began)
	if r.asJSON {
		return printJSON(r.out, struct {
			OK           bool  `json:"ok"`
			Bytes        int64 `json:"journal_bytes"`
			Milliseconds int64 `json:"milliseconds"`
		}{true, bytes, took.Milliseconds()})
	}
	fmt.Fprintf(r.out, "ok: rebuilt from %s of journal in %s\n", counted(bytes, "byte"), took.Round(time.Millisecond))
	return nil
}

func (r *rebuilding) database(ctx context.Context, url string) (err error) {
	s, err := postgres.Open(ctx, postgres.Options{URL: url, SkipMigrations: true, NoRollups: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	bar, rows := r.bar("adding up hours"), uint64(0)
	err = s.RebuildHours(ctx, func(done, total uint64) {
		rows = done
		bar.set(done, total)
	})
	bar.end()
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", postgres.Address(url), err)
	}
	took := time.Since(r.began)
	if r.asJSON {
		return printJSON(r.out, struct {
			OK           bool   `json:"ok"`
			Rows         uint64 `json:"rows"`
			Milliseconds int64  `json:"milliseconds"`
		}{true, rows, took.Milliseconds()})
	}
	fmt.Fprintf(r.out, "ok: hours added up again from %s in %s\n", counted(rows, "row"), took.Round(time.Millisecond))
	return nil
}
