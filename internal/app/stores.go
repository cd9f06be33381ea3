package app

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/engine"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

// embedded names the store in the data directory.
const embedded = "embedded"

// isDatabase reports whether a store's name is the URL of a PostgreSQL database.
func isDatabase(name string) bool {
	return strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://")
}

// openStore opens the store that the settings name; o has what they do not say about an embedded one.
func openStore(ctx context.Context, s *Settings, o engine.Options) (store.Store, error) {
	if isDatabase(s.Store) {
		p := s.Postgres
		db, err := postgres.Open(ctx, postgres.Options{URL: s.Store, MaxConns: p.MaxConns,
			StatementTimeout: p.StatementTimeout,
			LockTimeout:      p.LockTimeout, ConnectTimeout: p.ConnectTimeout, SkipMigrations: p.SkipMigrations,
			NoRollups: !p.Rollups, Metrics: o.Metrics})
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return db, nil
	}
	o.Dir, o.SegmentBytes, o.CheckpointBytes, o.IndexEntries = s.Data, s.Engine.SegmentBytes, s.Engine.CheckpointBytes,
		s.Engine.IndexEntries
	o.NoSlices = !s.Engine.Slices
	e, err := engine.Open(o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// place is where a command finds a ledger.
type place struct{ data, store string }

func (p *place) flags(c *cobra.Command) {
	c.Flags().StringVar(&p.data, "data", "./data", "directory of the embedded store")
	c.Flags().StringVar(&p.store, "store", embedded, "where the ledger is kept: embedded, or postgres://…")
}

// open opens what is there; it makes nothing.
func (p *place) open(c *cobra.Command) (store.Store, error) {
	s := defaultSettings()
	s.Data, s.Store, s.Postgres.SkipMigrations, s.Postgres.Rollups = p.data, p.store, true, false
	switch {
	case isDatabase(p.store):
	case p.store != embedded:
		return nil, wrongUse("--store is embedded, with --data, or postgres://…")
	default:
		if err := mustHoldStore(p.data); err != nil {
			return nil, err
		}
	}
	return openStore(c.Context(), &s, engine.Options{Fatal: exitOn(c.ErrOrStderr())})
}

// shownStore names the store in a log, without a password.
func shownStore(s *Settings) string {
	if !isDatabase(s.Store) {
		return s.Data
	}
	return postgres.Address(s.Store)
}
