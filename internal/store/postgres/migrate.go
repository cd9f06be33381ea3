package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Schema is where the tables are. It is on the search path of every connection, so that statements need not name it.
const Schema = "tallystick"

// versionTable is goose's.
const versionTable = "schema_versions"

// migrationLock is the advisory lock that one node at a time migrates under: the bytes of "tallystk".
const migrationLock = 0x74616c6c7973746b

// Migrate brings the database's schema up to date. Several nodes may do so at once: one does it and the others wait.
func Migrate(ctx context.Context, url string) error {
	return migrateBy(ctx, url, func(p *goose.Provider) error {
		have, newest, err := p.GetVersions(ctx)
		if err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		if have > newest {
			return fmt.Errorf("the schema is of version %d, this build knows %d: use a newer tallystick", have, newest)
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate from version %d: %w", have, err)
		}
		return nil
	})
}

// migrateBy runs fn while nobody else migrates the database. The lock ends with its connection.
func migrateBy(ctx context.Context, url string, fn func(p *goose.Provider) error) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse the database's URL: %w", err)
	}
	config.RuntimeParams["search_path"] = Schema
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("wait to migrate: %w", err)
	}
	if _, err := conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+Schema); err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return fn(p)
}
