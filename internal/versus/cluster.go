package versus

import (
	"context"
	"slices"

	"github.com/tallystick/tallystick/internal/versus/pgserver"
)

// settings are what anyone would tune who loads events into PostgreSQL: memory for the tables, and room for the log, so that no
// checkpoint falls into a measurement. Durability stays at its default: fsync and synchronous_commit on.
var settings = []string{"shared_buffers=512MB", "max_wal_size=4GB", "checkpoint_timeout=30min", "max_connections=100", "wal_compression=off"}

// fleeting is for tests that prove behavior, not speed.
var fleeting = []string{"fsync=off", "full_page_writes=off", "shared_buffers=32MB"}

// startCluster runs the PostgreSQL that all its contenders share.
func startCluster(ctx context.Context, careless bool) (*pgserver.Server, error) {
	o := pgserver.Options{Settings: settings}
	if careless {
		o.Settings = slices.Concat(settings, fleeting)
	}
	return pgserver.Start(ctx, o)
}
