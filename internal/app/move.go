package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/heap"
	"github.com/tallystick/tallystick/internal/service/move"
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
		Long: `Copies every tenant's ledger as it is: numbers, times, verdicts and tree of hashes. Then it
verifies the target, and marks the source as moved in a last row of each ledger: from then on the
source stays readable, refuses writes and names the new place. Stop the servers on both first. A
move that broke off is gone on with by running it again.

A store is a directory of the embedded store, or postgres://…`,
		Example: `  tallystick move --from ./data --to postgres://tallystick@db.internal/ledger
  tallystick move --from postgres://tallystick@db.internal/ledger --to ./data`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m := mover{from: from, to: to, bar: progressFor(c, asJSON), fatal: exitOn(c.ErrOrStderr())}
			if err := m.check(); err != nil {
				return err
			}
			heap.Tune()
			moved, err := m.run(c.Context())
			if err != nil {
				return fmt.Errorf("move: %w", err)
			}
			return showMove(c.OutOrStdout(), moved, m.place(), asJSON)
		},
	}
	c.Flags().StringVar(&from, "from", "", "`STORE` to move: a directory, or postgres://…")
	c.Flags().StringVar(&to, "to", "", "`STORE` to fill: a directory, or postgres://…")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON, without progress")
	return c
}

func showMove(out io.Writer, m move.Report, place string, asJSON bool) error {
	if asJSON {
		return printJSON(out, struct {
			OK      bool   `json:"ok"`
			To      string `json:"to"`
			Tenants int    `json:"tenants"`
			Rows    uint64 `json:"rows"`
			Moved   uint64 `json:"moved"`
			Marked  int    `json:"marked"`
		}{true, place, m.Tenants, m.Rows, m.Moved, m.Marked})
	}
	if m.Moved == 0 && m.Marked == 0 {
		fmt.Fprintf(out, "ok: everything was moved to %s already, and the source is marked\n", place)
		return nil
	}
	fmt.Fprintf(out, "ok: %s of %s at %s, %d of them moved now; heads, trees and counters agree; "+
		"the source takes no more writes\n",
		counted(m.Rows, "row"), counted(m.Tenants, "tenant"), place, m.Moved)
	return nil
}

// mover is a move between two named stores.
type mover struct {
	from, to string
	bar      func(string) *progressBar
	fatal    func(error)
}

func (m *mover) check() error {
	if m.from == "" || m.to == "" || placeOf(m.from) == placeOf(m.to) {
		return wrongUse("name two stores with --from and --to")
	}
	if !isDatabase(m.from) {
		return mustHoldStore(m.from)
	}
	return nil
}

func (m *mover) place() string { return placeOf(m.to) }

// placeOf names a store for people who look for it from elsewhere: without a password, and not relative to where we
// are.
func placeOf(name string) string {
	if isDatabase(name) {
		return shownStore(&Settings{Store: name})
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

func (m *mover) run(ctx context.Context) (moved move.Report, err error) {
	release, err := m.reserve(ctx)
	if err != nil {
		return moved, err
	}
	defer release()
	source, err := openEnd(ctx, m.from, m.fatal)
	if err != nil {
		return moved, fmt.Errorf("open the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if !isDatabase(m.to) && mustHoldStore(m.to) == nil {
		// A directory that everything was moved to is most likely served by now, and cannot be opened here.
		if done, err := move.Done(ctx, source, m.place()); err != nil || done {
			return moved, err
		}
	}
	target, err := openEnd(ctx, m.to, m.fatal)
	if err != nil {
		return moved, fmt.Errorf("open the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	rows := m.bar("moving")
	defer rows.end()
	return move.Run(ctx, source, target, move.Options{Place: m.place(), Progress: rows.set,
		Verify: func(ctx context.Context) error {
			rows.end()
			return m.verify(ctx, target)
		}})
}

func (m *mover) verify(ctx context.Context, target store.Store) error {
	report, err := recount(ctx, target, m.bar)
	if err == nil && !report.OK() {
		err = fmt.Errorf("the target differs from its own ledger in %s, the first: %s", counted(report.Found, "place"),
			report.Differences[0])
	}
	return err
}

// reserve keeps other moves away from the databases, and finds out when both names are one database: it would be marked
// as moved to itself. The lock of a data directory does the same for embedded stores.
func (m *mover) reserve(ctx context.Context) (release func(), err error) {
	var held []func()
	release = func() {
		for _, end := range held {
			end()
		}
	}
	for _, name := range []string{m.from, m.to} {
		if !isDatabase(name) {
			continue
		}
		end, err := postgres.ReserveMove(ctx, name)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, end)
	}
	return release, nil
}

// openEnd opens one of the two stores of a move.
func openEnd(ctx context.Context, name string, fatal func(error)) (store.Store, error) {
	s := defaultSettings()
	if isDatabase(name) {
		s.Store, s.Postgres.Rollups = name, false // the first server adds up what came
	} else {
		s.Data = name
	}
	return openStore(ctx, &s, engine.Options{Fatal: fatal})
}

func newMigrateCommand() *cobra.Command {
	var url string
	var asJSON bool
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
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					OK    bool   `json:"ok"`
					Store string `json:"store"`
				}{true, postgres.Address(url)})
			}
			fmt.Fprintln(c.OutOrStdout(), "ok: the schema is up to date")
			return nil
		},
	}
	c.Flags().StringVar(&url, "store", "", "the database, postgres://…")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}
