package versus

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/load"
	"github.com/tallystick/tallystick/internal/store/postgres"
)

// storeDatabase is made anew for every measurement of the PostgreSQL store.
const storeDatabase = "ledger"

// pgStore is Tallystick's own store in a database of its own.
type pgStore struct {
	b *bench
	s *postgres.Store
}

func openPgStore(ctx context.Context, b *bench, _ Cell) (subject, error) {
	s, err := emptyPgStore(ctx, b)
	if err != nil {
		return nil, err
	}
	if _, err := populate(ctx, s, b.w); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &pgStore{b, s}, nil
}

// emptyPgStore does not add usage up by the hour: what that takes from ingest is measured by itself, see RunHours.
func emptyPgStore(ctx context.Context, b *bench) (*postgres.Store, error) {
	if err := anew(ctx, b.cluster.URL(adminDatabase), storeDatabase); err != nil {
		return nil, err
	}
	s, err := postgres.Open(ctx, postgres.Options{URL: b.cluster.URL(storeDatabase), NoRollups: true})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// anew makes an empty database. The checkpoint writes down what earlier cells left, so that this one does not pay for
// it.
func anew(ctx context.Context, address, name string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // nothing of it is needed any more
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name, "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (p *pgStore) submitter(ctx context.Context) (func(*load.Batch) error, error) {
	var events []usage.Event
	return func(b *load.Batch) error {
		events = appendEvents(events[:0], p.b.w, b)
		return record(ctx, p.s, b, events)
	}, nil
}

func (p *pgStore) check(ctx context.Context, streams []*load.Stream, _ sample) error {
	return checkCounters(ctx, p.s, p.b.w, streams, 0)
}

func (p *pgStore) close() error { return p.s.Close() }
