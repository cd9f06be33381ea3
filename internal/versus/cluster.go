package versus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// settings are what anyone would tune who loads events into PostgreSQL: memory for the tables, and room for the log, so
// that no checkpoint falls into a measurement. Durability stays at its default: fsync and synchronous_commit on.
var settings = []string{"shared_buffers=512MB", "min_wal_size=2GB", "max_wal_size=4GB", "checkpoint_timeout=30min",
	"max_connections=100", "wal_compression=off"}

// fleeting is for tests that prove behavior, not speed.
var fleeting = []string{"fsync=off", "full_page_writes=off", "shared_buffers=32MB"}

// startCluster runs the PostgreSQL that all its contenders share.
func startCluster(ctx context.Context, careless bool) (*pgserver.Server, error) {
	if careless {
		return pgserver.Start(ctx, pgserver.Options{Settings: slices.Concat(settings, fleeting)})
	}
	s, err := pgserver.Start(ctx, pgserver.Options{Settings: settings})
	if err != nil {
		return nil, err
	}
	if err := wearIn(ctx, s.URL(adminDatabase)); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// usedSegments of the log, 16 MiB each, are what a server has that has run for a while.
const usedSegments = 100

// wearIn fills segments of the log and lets a checkpoint keep them for what comes. A server without used ones makes
// every new one while all commits wait, for some ten milliseconds each time; one that has run for a while does not.
func wearIn(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }() // nothing of it is needed any more
	for range usedSegments {
		if _, err := conn.Exec(ctx,
			"SELECT pg_logical_emit_message(false, 'wear', 'in'), pg_switch_wal()"); err != nil {
			return fmt.Errorf("fill the log: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
