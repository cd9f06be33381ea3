package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/move"
	"github.com/tallystick/tallystick/internal/service/verify"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

func newMoveCommand() *cobra.Command {
	var from, to string
	var asJSON bool
	c := &cobra.Command{
		Use:   "move",
		Short: "Carry all ledgers to another, empty store and verify them there",
		Long: `Copies every tenant's ledger as it is: numbers, times, verdicts and chain of hashes. Then it
verifies the target. The source is only read. Stop the servers on both first. A move that broke
off is gone on with by running it again.

A store is a directory of the embedded store, or postgres://…`,
		Example: `  tallystick move --from ./data --to postgres://tallystick@db.internal/ledger
  tallystick move --from postgres://tallystick@db.internal/ledger --to ./data`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" || from == to {
				return wrongUse("name two stores with --from and --to")
			}
			if !isDatabase(from) {
				if err := mustHoldStore(from); err != nil {
					return err
				}
			}
			heap.Tune()
			moved, report, err := moveAll(c, from, to, progressFor(c, asJSON))
			if err != nil {
				return fmt.Errorf("move: %w", err)
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					OK      bool   `json:"ok"`
					Tenants int    `json:"tenants"`
					Rows    uint64 `json:"rows"`
					Moved   uint64 `json:"moved"`
				}{report.OK(), moved.Tenants, moved.Rows, moved.Moved})
			}
			fmt.Fprintf(c.OutOrStdout(), "ok: %d rows of %d tenants are at the target, %d of them moved now; heads, chains and counters agree\n",
				moved.Rows, moved.Tenants, moved.Moved)
			return nil
		},
	}
	c.Flags().StringVar(&from, "from", "", "`STORE` to read: a directory, or postgres://…")
	c.Flags().StringVar(&to, "to", "", "`STORE` to fill: a directory, or postgres://…")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

func moveAll(c *cobra.Command, from, to string, bar func(string) *progressBar) (moved move.Report, report verify.Report, err error) {
	ctx := c.Context()
	source, err := openEnd(ctx, c, from)
	if err != nil {
		return moved, report, fmt.Errorf("open the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := openEnd(ctx, c, to)
	if err != nil {
		return moved, report, fmt.Errorf("open the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	rows := bar("moving")
	moved, err = move.Run(ctx, source, target, move.Options{Progress: rows.set})
	rows.end()
	if err != nil {
		return moved, report, err
	}
	if report, err = recount(ctx, target, bar); err == nil && !report.OK() {
		err = fmt.Errorf("the target differs from its own ledger in %d places, the first: %s", report.Found, report.Differences[0])
	}
	return moved, report, err
}

// openEnd opens one of the two stores of a move.
func openEnd(ctx context.Context, c *cobra.Command, name string) (store.Store, error) {
	s := defaultSettings()
	if isDatabase(name) {
		s.Store = name
	} else {
		s.Data = name
	}
	return openStore(ctx, &s, engine.Options{Fatal: exitOn(c.ErrOrStderr())})
}

func newMigrateCommand() *cobra.Command {
	var url string
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of a database up to date",
		Long: `Runs the migrations that the database lacks. A server does the same when it starts, unless its
settings say postgres.skip_migrations. Nodes that start at once wait for one another.`,
		Example: `  tallystick migrate --store postgres://owner@db.internal/ledger`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !isDatabase(url) {
				return wrongUse("--store must be postgres://…: an embedded store has no schema")
			}
			if err := postgres.Migrate(c.Context(), url); err != nil {
				return fmt.Errorf("migrate: %w", err)
			}
			fmt.Fprintln(c.OutOrStdout(), "ok: the schema is up to date")
			return nil
		},
	}
	c.Flags().StringVar(&url, "store", "", "the database, postgres://…")
	return c
}
