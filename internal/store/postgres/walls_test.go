package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tallystick/tallystick/internal/core/account"
	"github.com/tallystick/tallystick/internal/core/amount"
	"github.com/tallystick/tallystick/internal/core/ledger"
	"github.com/tallystick/tallystick/internal/core/meter"
	"github.com/tallystick/tallystick/internal/core/request"
	"github.com/tallystick/tallystick/internal/core/tree"
	"github.com/tallystick/tallystick/internal/core/usage"
	"github.com/tallystick/tallystick/internal/pgtest"
	"github.com/tallystick/tallystick/internal/store"
	"github.com/tallystick/tallystick/internal/store/storetest"
)

// twoTenants fills a database with two tenants that have rows in every table: two usage rows each.
func twoTenants(t *testing.T) (url string) {
	t.Helper()
	url = migrated(t)
	clock := storetest.NewClock()
	s := mustOpen(t, Options{URL: url, Now: clock.Now, MaxConns: few, SkipMigrations: true})
	defer mustClose(t, s)
	people := storetest.NewMeter("people", meter.Unique)
	people.UniqueProperty = "who"
	for _, id := range []string{"one", "two"} {
		if err := storetest.Create(s, id, people, storetest.NewMeter("calls", meter.Sum)); err != nil {
			t.Fatal(err)
		}
		e := storetest.With(storetest.Fact("a", "people", "c", storetest.Ago(0), "1"), storetest.Text("who", id))
		call := storetest.Fact("b", "calls", "c", storetest.Ago(0), "1")
		if _, err := s.Record(context.Background(),
			store.Batch{Tenant: id, Events: []usage.Event{e, call}}); err != nil {
			t.Fatal(err)
		}
		err := s.Update(context.Background(), id, func(tx store.Tx) error {
			if err := storetest.Assign(tx, "c", "free"); err != nil {
				return err
			}
			_, err := tx.Append(ledger.Keep(&request.Stored{Key: "k", ExpiresAt: tx.Now()}, "tester"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RollUp(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := s.Follow(context.Background(), store.Following{Tenant: id, Follower: "f"}); err != nil {
			t.Fatal(err)
		}
		importEntries(t, s, id, tree.TileRows)
		if err := pgtest.Exec(url, "INSERT INTO tallystick.leaves SELECT 1, '"+id+"', hash FROM tallystick.tiles "+
			"LIMIT 1"); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

// importEntries adds a section of n entries to a tenant's ledger.
func importEntries(t *testing.T, s *Store, id string, n int) {
	t.Helper()
	var section ledger.Section
	err := s.View(context.Background(), id, func(v store.View) error {
		section.First, section.At = v.Head().Seq+1, v.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e := account.Entry{ID: fmt.Sprint("e", i), Account: "a", Type: account.Credit, Amount: amount.FromInt(1),
			Time: section.At}
		section.Rows = append(section.Rows, ledger.Row{Seq: section.First + uint64(i), At: section.At, By: "bank",
			Entry: &account.Row{Entry: e, Version: uint64(i) + 1, Balance: amount.FromInt(int64(i) + 1)}})
	}
	if err := s.Import(context.Background(), id, section); err != nil {
		t.Fatal(err)
	}
}

// as connects and becomes a role for good, with or without a tenant.
func as(t *testing.T, url, role, tenantID string) *pgx.Conn {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	statements := []string{"SET search_path = " + Schema, "SET SESSION AUTHORIZATION " + role}
	if tenantID != "" {
		statements = append(statements, "SET tallystick.tenant = "+tenantID)
	}
	for _, st := range statements {
		if _, err := conn.Exec(ctx, st); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func count(t *testing.T, conn *pgx.Conn, query string) (n int) {
	t.Helper()
	if err := conn.QueryRow(context.Background(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// denied wants a statement refused for lack of rights.
func denied(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	_, err := conn.Exec(context.Background(), statement)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "42501" {
		t.Errorf("%s: %v, want it refused for lack of rights", statement, err)
	}
}

// Given two tenants, when the serving role names none of them, then it sees and adds nothing.
func TestWithoutATenantNothingIsSeen(t *testing.T) {
	t.Parallel()
	conn := as(t, twoTenants(t), roleServe, "")
	for _, name := range tables {
		if n := count(t, conn, "SELECT count(*) FROM "+name); n != 0 {
			t.Errorf("%d rows of %s are seen", n, name)
		}
	}
	denied(t, conn, "INSERT INTO used_meters (tenant_id, number) VALUES ('one', 9)")
	denied(t, conn, "INSERT INTO heads VALUES ('three', 0, '\\x00'::bytea, now(), 0)")
}

// Given two tenants, when the serving role names one of them, then it reaches no row of the other.
func TestOneTenantDoesNotReachAnother(t *testing.T) {
	t.Parallel()
	conn := as(t, twoTenants(t), roleServe, "one")
	for _, name := range tables {
		if n := count(t, conn, "SELECT count(*) FROM "+name); n == 0 {
			t.Errorf("no row of %s is seen by its own tenant", name)
		}
		if n := count(t, conn, "SELECT count(*) FROM "+name+" WHERE tenant_id <> 'one'"); n != 0 {
			t.Errorf("%d foreign rows of %s are seen", n, name)
		}
		denied(t, conn, fmt.Sprintf("INSERT INTO %s SELECT (jsonb_populate_record(x, '{\"tenant_id\": \"two\"}')).* "+
			"FROM %s x", name, name))
		if !slices.Contains(deletable, name) {
			denied(t, conn, "DELETE FROM "+name)
		}
		denied(t, conn, "TRUNCATE "+name)
		denied(t, conn, "ALTER TABLE "+name+" DISABLE ROW LEVEL SECURITY")
		if slices.Contains(appendOnly, name) {
			denied(t, conn, "UPDATE "+name+" SET tenant_id = tenant_id")
			continue
		}
		if tag, err := conn.Exec(context.Background(),
			"UPDATE "+name+" SET tenant_id = tenant_id WHERE tenant_id = 'two'"); err != nil ||
			tag.RowsAffected() != 0 {
			t.Errorf("update foreign rows of %s: %v, %v", name, tag, err)
		}
		denied(t, conn, "UPDATE "+name+" SET tenant_id = 'two'")
	}
	denied(t, conn, "SET ROLE postgres")
	denied(t, conn, "CREATE TABLE mine (n int)")
}

// Given two tenants, when the directory's role reads, then it sees who they are and nothing else.
func TestTheDirectoryReadsTenantsOnly(t *testing.T) {
	t.Parallel()
	conn := as(t, twoTenants(t), roleDirectory, "one")
	if n := count(t, conn, "SELECT count(*) FROM entities"); n != 2 {
		t.Errorf("%d entities are seen, want the two tenants", n)
	}
	if n := count(t, conn,
		"SELECT count(DISTINCT tenant_id) FROM entities WHERE kind = 'tenant' AND id = 'self'"); n != 2 {
		t.Errorf("%d tenants are listed, want 2", n)
	}
	for _, name := range tables {
		if columns, ok := listed[name]; ok {
			if n := count(t, conn, "SELECT count(*) FROM (SELECT "+columns+" FROM "+name+") x"); n != 2 {
				t.Errorf("%d rows of %s are listed, want one of each tenant", n, name)
			}
		}
		if name != "entities" && name != "rollups" { // which has no other columns than those that are listed
			denied(t, conn, "SELECT * FROM "+name)
		}
		denied(t, conn, "UPDATE "+name+" SET tenant_id = tenant_id")
		denied(t, conn, "DELETE FROM "+name)
	}
}

// Given two tenants, when the pruning role deletes, then only usage rows and leaves of the tenant it named go, and it
// adds nothing but leaves of that tenant. The serving role adds none.
func TestPruningKeepsToItsTenant(t *testing.T) {
	t.Parallel()
	url := twoTenants(t)
	conn := as(t, url, rolePrune, "one")
	tag, err := conn.Exec(context.Background(), "DELETE FROM usage_events")
	if err != nil || tag.RowsAffected() != 2 {
		t.Errorf("prune: %v, %v", tag, err)
	}
	add := "INSERT INTO leaves (tenant_id, seq, hash) VALUES ('%s', 2, repeat('x', 32)::bytea)"
	if _, err := conn.Exec(context.Background(), fmt.Sprintf(add, "one")); err != nil {
		t.Errorf("keep a leaf: %v", err)
	}
	denied(t, conn, fmt.Sprintf(add, "two"))
	denied(t, as(t, url, roleServe, "one"), fmt.Sprintf(add, "one"))
	if tag, err := conn.Exec(context.Background(), "DELETE FROM leaves"); err != nil || tag.RowsAffected() != 2 {
		t.Errorf("drop leaves: %v, %v", tag, err)
	}
	if n := count(t, conn, "SELECT count(*) FROM heads"); n != 1 {
		t.Errorf("%d heads are seen, want that of the tenant", n)
	}
	for _, name := range tables {
		if name != "leaves" {
			denied(t, conn, fmt.Sprintf("INSERT INTO %s SELECT (null::%s).*", name, name))
		}
		if name != "usage_events" && name != "leaves" {
			denied(t, conn, "DELETE FROM "+name)
		}
		denied(t, conn, "UPDATE "+name+" SET tenant_id = tenant_id")
	}
}

// Given a database in which any one of the walls is down, when a store opens on it, then it refuses to serve and says
// why.
func TestAStoreRefusesBrokenWalls(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	url, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, Options{URL: url}))
	for _, c := range []struct{ wants, breaks, mends string }{
		{"could pass the walls", "ALTER ROLE tallystick_serve SUPERUSER", "ALTER ROLE tallystick_serve NOSUPERUSER"},
		{"could pass the walls", "ALTER ROLE tallystick_serve BYPASSRLS", "ALTER ROLE tallystick_serve NOBYPASSRLS"},
		{"could pass the walls", "ALTER ROLE tallystick_directory BYPASSRLS",
			"ALTER ROLE tallystick_directory NOBYPASSRLS"},
		{"could pass the walls", "ALTER ROLE tallystick_serve CREATEROLE", "ALTER ROLE tallystick_serve NOCREATEROLE"},
		{"could pass the walls", "GRANT tallystick_prune TO tallystick_serve",
			"REVOKE tallystick_prune FROM tallystick_serve"},
		{"not forced", "ALTER TABLE counters NO FORCE ROW LEVEL SECURITY",
			"ALTER TABLE counters FORCE ROW LEVEL SECURITY"},
		{"not forced", "ALTER TABLE usage_events DISABLE ROW LEVEL SECURITY",
			"ALTER TABLE usage_events ENABLE ROW LEVEL SECURITY"},
		{"no version of tallystick made", "CREATE TABLE copied AS SELECT * FROM usage_events", "DROP TABLE copied"},
		{"no version of tallystick made", "CREATE VIEW everything AS SELECT * FROM usage_events",
			"DROP VIEW everything"},
		{"belongs to role", "GRANT ALL ON SCHEMA tallystick TO tallystick_serve; ALTER TABLE members OWNER TO " +
			"tallystick_serve", "ALTER TABLE members OWNER TO postgres; REVOKE CREATE ON SCHEMA tallystick FROM " +
			"tallystick_serve; REVOKE DELETE, TRUNCATE, TRIGGER, REFERENCES ON members FROM tallystick_serve"},
		{"lets rows through", "CREATE POLICY open ON heads USING (true)", "DROP POLICY open ON heads"},
		{"lets rows through", "ALTER POLICY tenant_wall ON counters USING (true)",
			"ALTER POLICY tenant_wall ON counters USING (tenant_id = current_setting('tallystick.tenant', true))"},
		{"lets rows through", "ALTER POLICY tenant_wall ON counters TO tallystick_serve, tallystick_directory",
			"ALTER POLICY tenant_wall ON counters TO tallystick_serve"},
		{"lets rows through", "CREATE POLICY directory ON counters FOR SELECT TO tallystick_directory USING (true)",
			"DROP POLICY directory ON counters"},
		{"may read columns", "GRANT SELECT (tree) ON heads TO tallystick_directory",
			"REVOKE SELECT (tree) ON heads FROM tallystick_directory"},
		{"may read columns", "GRANT SELECT ON followings TO tallystick_directory",
			"REVOKE SELECT ON followings FROM tallystick_directory; GRANT SELECT (tenant_id, follower, position, " +
				"due, " +
				"failing, expires_at) ON followings TO tallystick_directory"},
		{"may read columns", "REVOKE SELECT (seq) ON heads FROM tallystick_directory",
			"GRANT SELECT (seq) ON heads TO tallystick_directory"},
		{"no policy", "DROP POLICY tenant_wall ON sections",
			"CREATE POLICY tenant_wall ON sections AS PERMISSIVE FOR ALL TO tallystick_serve USING (tenant_id = " +
				"current_setting('tallystick.tenant', true)) WITH CHECK (tenant_id = " +
				"current_setting('tallystick.tenant', true))"},
		{"from deleting what does not expire", "DROP POLICY forget ON entities",
			"CREATE POLICY forget ON entities AS RESTRICTIVE FOR DELETE TO tallystick_serve USING (expires_at IS NOT " +
				"NULL)"},
		{"lets rows through", "ALTER POLICY directory ON entities USING (true)",
			"ALTER POLICY directory ON entities USING (kind = 'tenant')"},
		{"lets rows through", "ALTER POLICY forget ON entities USING (true)",
			"ALTER POLICY forget ON entities USING (expires_at IS NOT NULL)"},
		{"may delete", "GRANT DELETE ON entities TO tallystick_directory",
			"REVOKE DELETE ON entities FROM tallystick_directory"},
		{"whose rows never change", "GRANT UPDATE ON entity_terms TO tallystick_serve",
			"REVOKE UPDATE ON entity_terms FROM tallystick_serve"},
		{"does not exist", "ALTER TABLE members RENAME TO schema_versions_2; ALTER TABLE schema_versions_2 SET " +
			"SCHEMA public", "ALTER TABLE public.schema_versions_2 SET SCHEMA tallystick; ALTER TABLE " +
			"schema_versions_2 RENAME TO members"},
		{"whose rows never change", "GRANT UPDATE ON usage_events TO tallystick_serve",
			"REVOKE UPDATE ON usage_events FROM tallystick_serve"},
		{"whose rows never change", "GRANT UPDATE (actor) ON changes TO PUBLIC",
			"REVOKE UPDATE (actor) ON changes FROM PUBLIC"},
		{"may delete", "GRANT DELETE ON sections TO tallystick_serve",
			"REVOKE DELETE ON sections FROM tallystick_serve"},
		{"may delete", "GRANT TRUNCATE ON changes TO PUBLIC", "REVOKE TRUNCATE ON changes FROM PUBLIC"},
		{"may read columns", "GRANT SELECT ON changes TO tallystick_directory",
			"REVOKE SELECT ON changes FROM tallystick_directory"},
		{"synchronous_commit is off", "ALTER ROLE postgres SET synchronous_commit = off",
			"ALTER ROLE postgres RESET synchronous_commit"},
	} {
		if err := pgtest.Exec(url, "SET search_path = tallystick; "+c.breaks); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), Options{URL: url})
		if err == nil {
			mustClose(t, s)
			t.Errorf("a store opened after %s", c.breaks)
		} else if !strings.Contains(err.Error(), c.wants) {
			t.Errorf("after %s: %v, want %q", c.breaks, err, c.wants)
		}
		if err := pgtest.Exec(url, "SET search_path = tallystick; "+c.mends); err != nil {
			t.Fatal(err)
		}
		mustClose(t, mustOpen(t, Options{URL: url}))
	}
}

// Given a user who is no member of the serving role, when a store opens as that user, then it refuses to serve.
func TestAStrangerCannotServe(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	url, err := server.Create("")
	if err != nil {
		t.Fatal(err)
	}
	if err := Migrate(context.Background(), url); err != nil {
		t.Fatal(err)
	}
	if err := pgtest.Exec(url, "CREATE ROLE stranger LOGIN"); err != nil {
		t.Fatal(err)
	}
	o := Options{URL: strings.Replace(url, "postgres@", "stranger@", 1), SkipMigrations: true}
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "not a member") {
		t.Errorf("open: %v, want a refusal", err)
	}
	if err := pgtest.Exec(url, "GRANT tallystick_serve, tallystick_directory TO stranger"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, o)) // a member serves, without any right of its own
}

// Given an owner of the database who is no superuser, as a managed database has, when a store opens as that user, then
// it migrates and serves, and the walls hold for the owner too.
func TestAnOwnerWithoutPrivilegesServes(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t)
	if err := server.Exec("postgres", "CREATE ROLE owner LOGIN CREATEROLE",
		"CREATE DATABASE owned OWNER owner"); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server.URL("owned"), "postgres@", "owner@", 1)
	s := mustOpen(t, Options{URL: url})
	defer mustClose(t, s)
	if err := storetest.Create(s, "acme", storetest.NewMeter("calls", meter.Sum)); err != nil {
		t.Fatal(err)
	}
	vs, err := s.Record(context.Background(),
		store.Batch{Tenant: "acme", Events: []usage.Event{storetest.Untimed(numbered(1))}})
	if err != nil || vs[0].Status != usage.Accepted {
		t.Fatalf("record: %v, %v", vs, err)
	}
	storetest.CheckLedger(t, s, "acme")
	for _, name := range tables {
		if name == "entities" || listed[name] != "" { // the directory's, of which the owner is a member too
			continue
		}
		if n := count(t, as(t, server.URL("owned"), "owner", "other"), "SELECT count(*) FROM "+name); n != 0 {
			t.Errorf("the owner sees %d rows of %s that belong to another tenant", n, name)
		}
	}
}
