package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Schema is where the tables are. It is on the search path of every connection, so that statements need not name it.
const Schema = "tallystick"

// migrationLock is the advisory lock that one node at a time migrates under: the bytes of "tallystk".
const migrationLock = 0x74616c6c7973746b

// Migrate brings the database's schema up to date. Several nodes may do so at once: one does it and the others wait.
//
// The files are in goose's format, so that its command runs them too. The runner is our own, because a dependency of goose's
// current release is not to be had beside the other modules, and this is all of it that is needed.
func Migrate(ctx context.Context, url string) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse the database's URL: %w", err)
	}
	config.RuntimeParams["search_path"] = Schema
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // which also ends the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait to migrate: %w", err)
	}
	const start = "CREATE SCHEMA IF NOT EXISTS " + Schema + `;
		CREATE TABLE IF NOT EXISTS schema_versions (version bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL)`
	if _, err := conn.Exec(ctx, start); err != nil {
		return fmt.Errorf("make the table of schema versions: %w", err)
	}
	var have int64
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_versions").Scan(&have); err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	known, err := versions()
	if err != nil {
		return err
	}
	if newest := known[len(known)-1].number; have > newest {
		return fmt.Errorf("the schema is of version %d, this build knows %d: use a newer tallystick", have, newest)
	}
	for _, v := range known {
		if v.number <= have {
			continue
		}
		if err := apply(ctx, conn, v); err != nil {
			return fmt.Errorf("migrate to version %d: %w", v.number, err)
		}
	}
	return nil
}

type version struct {
	number int64
	up     string
}

// versions reads the embedded files, in order of their numbers.
func versions() ([]version, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var out []version
	for _, name := range files {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		digits, _, _ := strings.Cut(strings.TrimPrefix(name, "migrations/"), "_")
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", name, err)
		}
		_, up, ok := strings.Cut(string(text), "-- +goose Up")
		if !ok {
			return nil, fmt.Errorf("migration %s says nothing after +goose Up", name)
		}
		out = append(out, version{number, up})
	}
	return out, nil
}

// apply runs a migration and notes it, both or neither.
func apply(ctx context.Context, conn *pgx.Conn, v version) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Without parameters the text goes to the server as it is, all statements at once.
		if _, err := tx.Exec(ctx, v.up); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO schema_versions (version, at) VALUES ($1, clock_timestamp())", v.number)
		return err
	})
}
