package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tallystick/tallystick/internal/core/tenant"
)

// What the walls between tenants rest on. A start that finds any of it missing must not serve: a query that forgot its
// tenant would then show another one's rows.
var (
	// A role is only a wall if it can neither look over it nor become somebody who can.
	guardRole = &statement{name: "guard_role", sql: `SELECT rolsuper OR rolbypassrls OR rolcreaterole
			OR rolreplication OR rolcanlogin OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid),
			pg_has_role(session_user, r.oid, 'MEMBER') FROM pg_roles r WHERE rolname = $1`}
	guardTables = &statement{name: "guard_tables", sql: `SELECT c.relname::text,
			c.relrowsecurity AND c.relforcerowsecurity,
			c.relowner = (SELECT oid FROM pg_roles WHERE rolname = $2)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname <> 'schema_versions'`}
	guardPolicies = &statement{name: "guard_policies", sql: `SELECT tablename::text, policyname::text, permissive::text,
			roles::text[]::text, cmd::text, coalesce(qual, ''), coalesce(with_check, '')
		FROM pg_policies WHERE schemaname = $1`}
	guardGrants = &statement{name: "guard_grants", sql: `SELECT r.rolname::text, c.relname::text,
			has_table_privilege(r.oid, c.oid, 'UPDATE') OR has_any_column_privilege(r.oid, c.oid, 'UPDATE'),
			has_table_privilege(r.oid, c.oid, 'DELETE'),
			has_table_privilege(r.oid, c.oid, 'TRUNCATE') OR has_table_privilege(r.oid, c.oid, 'TRIGGER'),
			has_table_privilege(r.oid, c.oid, 'SELECT'),
			coalesce((SELECT string_agg(a.attname, ',' ORDER BY a.attname) FROM pg_attribute a
				WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
					AND has_column_privilege(r.oid, c.oid, a.attnum, 'SELECT')), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_roles r
		WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND r.rolname IN ($2, $3)`}
	guardSettings = &statement{name: "guard_settings",
		sql: "SELECT current_setting('synchronous_commit'), current_setting('standard_conforming_strings')"}
	guardBecome = &statement{name: "guard_become",
		sql: "SELECT current_user::text, row_security_active('usage_events')"}
)

// wall is the condition of every policy, as PostgreSQL writes it back.
const wall = "(tenant_id = current_setting('tallystick.tenant'::text, true))"

// guard refuses a database, for whatever command, in which the walls between tenants, or the durability of a commit, do
// not hold.
func (s *Store) guard(ctx context.Context) error {
	c, err := s.lend(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.giveBack(ctx)
	for _, check := range []func(context.Context, *session) error{guardRoles, guardWalls, guardRights, guardSession} {
		if err := check(ctx, c); err != nil {
			return fmt.Errorf("refusing to use this database: %w", err)
		}
	}
	return nil
}

func guardRoles(ctx context.Context, c *session) error {
	for _, role := range []string{roleServe, roleDirectory} {
		found := false
		err := c.ask(ctx, guardRole, func(in *reader) error {
			strong, member := in.bool(), in.bool()
			found = true
			if strong {
				return fmt.Errorf("role %s could pass the walls between tenants: it must have no login, no other "+
					"role, "+
					"no superuser, replication, createrole or bypassrls", role)
			}
			if !member {
				return fmt.Errorf("the user of the connection is not a member of role %s: GRANT %s TO it", role, role)
			}
			return nil
		}, []byte(role))
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("role %s does not exist: run `tallystick migrate`", role)
		}
	}
	return nil
}

func guardWalls(ctx context.Context, c *session) error {
	walled, policies := map[string]bool{}, map[string]bool{}
	err := c.ask(ctx, guardTables, func(in *reader) error {
		name, forced, owned := in.text(), in.bool(), in.bool()
		if !slices.Contains(tables, name) {
			return fmt.Errorf("schema %s holds %s, which no version of tallystick made", Schema, name)
		}
		if !forced {
			return fmt.Errorf("row-level security of table %s is not forced", name)
		}
		if owned {
			return fmt.Errorf("table %s belongs to role %s, which could take its walls down", name, roleServe)
		}
		walled[name] = true
		return nil
	}, []byte(Schema), []byte(roleServe))
	if err != nil {
		return err
	}
	err = c.ask(ctx, guardPolicies, func(in *reader) error {
		table, name, permissive, roles := in.text(), in.text(), in.text(), in.text()
		cmd, using, check := in.text(), in.text(), in.text()
		got := strings.Join([]string{name, permissive, roles, cmd, using, check}, " | ")
		for _, want := range []string{
			"tenant_wall | PERMISSIVE | {" + roleServe + "} | ALL | " + wall + " | " + wall,
			"prune | PERMISSIVE | {" + rolePrune + "} | ALL | " + wall + " | ",
		} {
			if got == want {
				policies[table+name] = true
				return nil
			}
		}
		if listed[table] != "" && got == "directory | PERMISSIVE | {"+roleDirectory+"} | SELECT | true | " {
			return nil
		}
		if table == "entities" {
			switch got {
			case "directory | PERMISSIVE | {" + roleDirectory + "} | SELECT | (kind = '" + tenant.Kind.Name +
				"'::text) | ":
				return nil
			case "forget | RESTRICTIVE | {" + roleServe + "} | DELETE | (expires_at IS NOT NULL) | ":
				policies[table+name] = true
				return nil
			}
		}
		return fmt.Errorf("table %s has a policy that lets rows through: %s", table, got)
	}, []byte(Schema))
	if err != nil {
		return err
	}
	for _, name := range tables {
		if !walled[name] {
			return fmt.Errorf("table %s does not exist: run `tallystick migrate`", name)
		}
		if !policies[name+"tenant_wall"] {
			return fmt.Errorf("table %s has no policy for role %s", name, roleServe)
		}
	}
	if !policies["entitiesforget"] {
		return fmt.Errorf("table entities has no policy that keeps role %s from deleting what does not expire",
			roleServe)
	}
	return nil
}

func guardRights(ctx context.Context, c *session) error {
	return c.ask(ctx, guardGrants, func(in *reader) error {
		role, table := in.text(), in.text()
		updates, deletes, empties, reads := in.bool(), in.bool(), in.bool(), in.bool()
		columns := in.text()
		switch {
		case empties, deletes && (role == roleDirectory || !slices.Contains(deletable, table)):
			return fmt.Errorf("role %s may delete, truncate or put triggers on table %s", role, table)
		case updates && (role == roleDirectory || slices.Contains(appendOnly, table)):
			return fmt.Errorf("role %s may update table %s, whose rows never change", role, table)
		case role == roleDirectory && table != "entities" && (reads || columns != listed[table]):
			return fmt.Errorf("role %s may read columns (%s) of table %s of all tenants: it should be (%s)", role,
				columns, table, listed[table])
		}
		return nil
	}, []byte(Schema), []byte(roleServe), []byte(roleDirectory))
}

// guardSession becomes the serving role once, as every transaction will, and looks at where it stands.
func guardSession(ctx context.Context, c *session) error {
	r := c.roundTrip(ctx)
	r.beginReading(roleServe, "")
	r.send(guardSettings, func(in *reader) error {
		if v := in.text(); v == "off" {
			return fmt.Errorf("synchronous_commit is off for this user: a commit that was answered could be lost")
		}
		if v := in.text(); v != "on" {
			return fmt.Errorf("standard_conforming_strings is %s: the name of a tenant could be taken for SQL", v)
		}
		return nil
	})
	r.send(guardBecome, func(in *reader) error {
		if role, walled := in.text(), in.bool(); role != roleServe || !walled {
			return fmt.Errorf("after SET LOCAL ROLE %s the session is %s, walls: %t", roleServe, role, walled)
		}
		return nil
	})
	return r.do()
}
