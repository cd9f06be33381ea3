package postgres

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/tallystick/tallystick/internal/pgtest"
)

// Given an empty database, when several nodes migrate it at once and again, then all succeed and the schema is there
// once.
func TestMigratingAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	for name, major := range majors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, err := major.server(t).Create("")
			if err != nil {
				t.Fatal(err)
			}
			migrateAtOnceAndAgain(t, url)
		})
	}
}

func migrateAtOnceAndAgain(t *testing.T, url string) {
	t.Helper()
	for range 2 {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := Migrate(context.Background(), url); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	mustClose(t, mustOpen(t, Options{URL: url, SkipMigrations: true}))
}

// Given databases of one server, when all are migrated at once, then the roles that they share are made once.
func TestMigratingDatabasesOfOneServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	var wg sync.WaitGroup
	for range 3 {
		url, err := server.Create("")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := Migrate(context.Background(), url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Given a schema that a newer build made, when this one migrates, then it stops instead of guessing.
func TestANewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	url := migrated(t)
	if err := pgtest.Exec(url, "INSERT INTO tallystick.schema_versions (version_id, is_applied) VALUES (9999, "+
		"true)"); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(context.Background(), url); err == nil || !strings.Contains(err.Error(), "newer tallystick") {
		t.Errorf("migrate: %v, want it to stop", err)
	}
}

// Given a database without the schema, when a store opens that may not migrate, then it refuses to serve.
func TestAStoreWithoutASchemaRefuses(t *testing.T) {
	t.Parallel()
	url, err := pgtest.Shared(t).Create("")
	if err != nil {
		t.Fatal(err)
	}
	migrated(t) // the roles exist: what is missing is the tables
	if _, err := Open(context.Background(), Options{URL: url, SkipMigrations: true}); err == nil ||
		!strings.Contains(err.Error(), "run `tallystick migrate`") {
		t.Errorf("open: %v, want a refusal", err)
	}
}
