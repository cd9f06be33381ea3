package postgres

// statement is SQL that is prepared on each connection under its name.
type statement struct {
	name, sql string
	// choosy statements read a table with several indexes. See Store.grown.
	choosy bool
}

// The roles that transactions run in. Connections log in as somebody else.
const (
	roleServe     = "tallystick_serve"
	roleDirectory = "tallystick_directory"
	rolePrune     = "tallystick_prune"
)

// The tables, and those whose rows the serving role can neither change nor take away.
var (
	tables = []string{"entities", "entity_terms", "critical_kinds", "used_meters", "heads", "sections", "usage_events",
		"entries", "changes", "tiles", "leaves", "counters", "members", "tallies", "followings", "rollups",
		"usage_days"}
	appendOnly = []string{"sections", "usage_events", "entries", "changes", "tiles", "leaves", "entity_terms",
		"critical_kinds", "used_meters"}
	// Of these it may take rows away: of entities, those that expire.
	deletable = []string{"entities", "entity_terms", "followings", "rollups", "usage_days"}
	// Of these the directory reads some columns, which stand here by name.
	listed = map[string]string{"heads": "seq,tenant_id", "rollups": "seq,tenant_id",
		"followings": "due,expires_at,failing,follower,position,tenant_id"}
)

// Transactions. A writer must see what was committed while it waited for the head's lock, so each of its statements has
// a snapshot of its own; a reader sees one moment throughout.
var (
	beginWrite = &statement{name: "begin_write", sql: "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"}
	beginRead  = &statement{name: "begin_read", sql: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}
	commit     = &statement{name: "commit", sql: "COMMIT"}
	rollback   = &statement{name: "rollback", sql: "ROLLBACK"}
	// The settings end with the transaction.
	becomes = map[string]*statement{
		roleServe:     {name: "become_serve", sql: "SET LOCAL ROLE " + roleServe},
		roleDirectory: {name: "become_directory", sql: "SET LOCAL ROLE " + roleDirectory},
		rolePrune:     {name: "become_prune", sql: "SET LOCAL ROLE " + rolePrune},
	}
	idleAsReader = &statement{name: "idle_as_reader",
		sql: "SET LOCAL idle_in_transaction_session_timeout = '" + readerIdle + "'"}
	nameTenant = &statement{name: "name_tenant"} // its text differs from tenant to tenant
)

// The head.
const headColumns = "seq, tree, clock, resident_version, clock_timestamp()"

var (
	lockHead = &statement{name: "lock_head",
		sql: "SELECT " + headColumns + " FROM heads WHERE tenant_id = $1 FOR UPDATE"}
	readHead = &statement{name: "read_head", sql: "SELECT " + headColumns + " FROM heads WHERE tenant_id = $1"}
	// A tenant's first update makes the head it then locks; two at once wait for one another here.
	makeHead = &statement{name: "make_head", sql: `INSERT INTO heads (tenant_id, seq, tree, clock, resident_version)
		VALUES ($1, 0, $2, $3, 0) ON CONFLICT (tenant_id) DO NOTHING`}
)

// Sections.
var (
	// A section and the head after it, in one statement.
	addSection = &statement{name: "add_section", sql: `WITH section AS (INSERT INTO sections
				(tenant_id, first_seq, row_count, at, token)
			VALUES ($1, $2, $3, $4, $5))
		UPDATE heads SET seq = $7, tree = $6, clock = $4, resident_version = $8 WHERE tenant_id = $1`}
	sectionToken = &statement{name: "section_token", sql: `SELECT token FROM sections
		WHERE tenant_id = $1 AND first_seq = $2`}
	sectionOf = &statement{name: "section_of", sql: `SELECT first_seq, row_count, at FROM sections
		WHERE tenant_id = $1 AND first_seq <= $2 ORDER BY first_seq DESC LIMIT 1`}
	sectionsFrom = &statement{name: "sections_from", sql: `SELECT first_seq, row_count, at FROM sections
		WHERE tenant_id = $1 AND first_seq >= $2 ORDER BY first_seq LIMIT $3`}
)

// Usage events.
const eventColumns = `key, seq, at, time, quantity, given, meter, customer, event_type, resource, client_id, properties,
	corrects, reason, by, outcomes`

// eventBefore is the row that the counter of meter $3 folded before.
const eventBefore = `coalesce(prev,
	(SELECT (o->>'prev')::bigint FROM json_array_elements(outcomes::json) AS o
		WHERE (o->>'meter')::bigint = $3)) AS before`

var (
	// Identity was decided under the head's lock, so there is no conflict to handle; one would be a defect, and fails
	// the commit. Here and elsewhere, arrays are inserted by a select from the tenant's head: a distributed PostgreSQL
	// then sends the statement to where the tenant is, and would refuse a select of arrays alone. The functions that
	// return sets stand in the select list and not in FROM: they are then read in step, without being stored first,
	// which is felt by a commit of one event.
	addPlainEvents = &statement{name: "add_plain_events", sql: `INSERT INTO usage_events
			(tenant_id, at, adjusted, key, seq, time, quantity, given, meter, customer, resource, properties, by,
				prev)
		SELECT h.tenant_id, $2, false, unnest($3::text[]), unnest($4::bigint[]), unnest($5::timestamptz[]),
			unnest($6::numeric[]), unnest($7::smallint[]), unnest($8::text[]), unnest($9::text[]),
			unnest($10::text[]), unnest($11::text[]), unnest($12::text[]), unnest($13::bigint[])
		FROM heads h WHERE h.tenant_id = $1`}
	addEvents = &statement{name: "add_events", sql: `INSERT INTO usage_events
			(tenant_id, at, key, seq, time, quantity, given, meter, customer, resource, properties, by,
			adjusted, event_type, client_id, corrects, reason, outcomes)
		SELECT h.tenant_id, $2, unnest($3::text[]), unnest($4::bigint[]), unnest($5::timestamptz[]),
			unnest($6::numeric[]), unnest($7::smallint[]), unnest($8::text[]), unnest($9::text[]),
			unnest($10::text[]), unnest($11::text[]), unnest($12::text[]), unnest($13::boolean[]),
			unnest($14::text[]), unnest($15::text[]), unnest($16::text[]), unnest($17::text[]), unnest($18::text[])
		FROM heads h WHERE h.tenant_id = $1`}
	// The lateral subqueries with their limits and offsets keep the planner to one descent of an index for each key,
	// whatever it believes of the number of keys.
	eventsByKey = &statement{name: "events_by_key", sql: `SELECT e.* FROM (SELECT unnest($2::text[]) AS key) k
		CROSS JOIN LATERAL (SELECT ` + eventColumns + ` FROM usage_events
			WHERE tenant_id = $1 AND key = k.key LIMIT 1) e`}
	corrections = &statement{name: "corrections", choosy: true, sql: `SELECT e.* FROM unnest($2::text[]) AS k(key)
		CROSS JOIN LATERAL (SELECT ` + eventColumns + ` FROM usage_events
			WHERE tenant_id = $1 AND corrects = k.key OFFSET 0) e ORDER BY e.seq`}
	eventsBetween = &statement{name: "events_between", choosy: true, sql: "SELECT " + eventColumns + ` FROM usage_events
		WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 AND seq > 0 AND time >= $4 AND time < $5
			AND (adjusted OR NOT $6) ORDER BY seq`}
	// The rows that one counter folded, from its tail on backwards, with the row that comes before each.
	eventsOfCounter = &statement{name: "events_of_counter", choosy: true, sql: `WITH RECURSIVE chain AS (
			SELECT ` + eventColumns + ", " + eventBefore + `
			FROM usage_events WHERE tenant_id = $1 AND seq = $2 AND seq > 0
			UNION ALL
			SELECT e.* FROM chain c CROSS JOIN LATERAL (
				SELECT ` + eventColumns + ", " + eventBefore + `
				FROM usage_events WHERE tenant_id = $1 AND seq = c.before AND seq > 0 LIMIT 1) e WHERE e.seq < c.seq
		) SELECT ` + eventColumns + `, before FROM chain`}
)

// Changes and what they leave behind.
const changeColumns = "seq, at, type, source, actor, entity_type, entity_id, payload, kind, id, version, critical, data"

var (
	addChanges = &statement{name: "add_changes", sql: `INSERT INTO changes
			(tenant_id, at, seq, type, source, actor, entity_type, entity_id, payload,
			kind, id, version, critical, data)
		SELECT h.tenant_id, $2, unnest($3::bigint[]), unnest($4::text[]), unnest($5::text[]),
			unnest($6::text[]), unnest($7::text[]), unnest($8::text[]), unnest($9::text[]), unnest($10::text[]),
			unnest($11::text[]), unnest($12::smallint[]), unnest($13::boolean[]), unnest($14::text[])
		FROM heads h WHERE h.tenant_id = $1`}
	changesBetween = &statement{name: "changes_between", choosy: true, sql: "SELECT " + changeColumns + `
		FROM changes WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq`}
	changesAfter = &statement{name: "changes_after", choosy: true, sql: "SELECT " + changeColumns + `
		FROM changes WHERE tenant_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`}
)

// Counters and members.
const (
	counterKey     = "month, meter, customer"
	foldColumns    = "count, sum, min, max, at_min, at_max, last, last_time, last_key, members"
	allFoldColumns = `all_count, all_sum, all_min, all_max, all_at_min, all_at_max, all_last, all_last_time,
		all_last_key, all_members`
	counterColumns = counterKey + ", watermark, generation, tail, manual, sealed, " + foldColumns + ", " +
		allFoldColumns + ", alerted"
)

const insertPlainCounters = "INSERT INTO counters (tenant_id, " + counterKey + `,
			watermark, generation, tail, ` + foldColumns + `)
		SELECT h.tenant_id, unnest($2::date[]), unnest($3::text[]), unnest($4::text[]),
			unnest($5::timestamptz[]), unnest($6::integer[]), unnest($7::bigint[]), unnest($8::bigint[]),
			unnest($9::numeric[]), unnest($10::numeric[]), unnest($11::numeric[]), unnest($12::bigint[]),
			unnest($13::bigint[]), unnest($14::numeric[]), unnest($15::timestamptz[]), unnest($16::text[]),
			unnest($17::bigint[])
		FROM heads h WHERE h.tenant_id = $1`

var (
	// Most counters have seen neither a late row nor a person: their other columns are null and stay so. Under the
	// head's lock it is known which of them have a row; those that have none are spared the search for it.
	addPlainCounters = &statement{name: "add_plain_counters", sql: insertPlainCounters}
	putPlainCounters = &statement{name: "put_plain_counters", sql: insertPlainCounters + `
		ON CONFLICT (tenant_id, month, meter, customer) DO UPDATE SET watermark = excluded.watermark,
			generation = excluded.generation, tail = excluded.tail,
			count = excluded.count, sum = excluded.sum, min = excluded.min, max = excluded.max,
			at_min = excluded.at_min, at_max = excluded.at_max,
			last = excluded.last, last_time = excluded.last_time, last_key = excluded.last_key,
			members = excluded.members`}
	putCounters = &statement{name: "put_counters", sql: "INSERT INTO counters (tenant_id, " + counterColumns + `)
		SELECT h.tenant_id, unnest($2::date[]), unnest($3::text[]), unnest($4::text[]),
			unnest($5::timestamptz[]), unnest($6::integer[]), unnest($7::bigint[]), unnest($18::numeric[]),
			unnest($19::numeric[]), unnest($8::bigint[]), unnest($9::numeric[]), unnest($10::numeric[]),
			unnest($11::numeric[]), unnest($12::bigint[]), unnest($13::bigint[]), unnest($14::numeric[]),
			unnest($15::timestamptz[]), unnest($16::text[]), unnest($17::bigint[]), unnest($20::bigint[]),
			unnest($21::numeric[]), unnest($22::numeric[]), unnest($23::numeric[]), unnest($24::bigint[]),
			unnest($25::bigint[]), unnest($26::numeric[]), unnest($27::timestamptz[]), unnest($28::text[]),
			unnest($29::bigint[]), unnest($30::smallint[])
		FROM heads h WHERE h.tenant_id = $1
		ON CONFLICT (tenant_id, month, meter, customer) DO UPDATE SET watermark = excluded.watermark,
			generation = excluded.generation, tail = excluded.tail,
			manual = excluded.manual, sealed = excluded.sealed,
			count = excluded.count, sum = excluded.sum, min = excluded.min, max = excluded.max,
			at_min = excluded.at_min, at_max = excluded.at_max,
			last = excluded.last, last_time = excluded.last_time, last_key = excluded.last_key,
			members = excluded.members,
			all_count = excluded.all_count, all_sum = excluded.all_sum, all_min = excluded.all_min,
			all_max = excluded.all_max,
			all_at_min = excluded.all_at_min, all_at_max = excluded.all_at_max,
			all_last = excluded.all_last, all_last_time = excluded.all_last_time,
			all_last_key = excluded.all_last_key, all_members = excluded.all_members, alerted = excluded.alerted`}
	countersByKey = &statement{name: "counters_by_key", sql: `SELECT c.* FROM (SELECT
			unnest($2::date[]) AS month, unnest($3::text[]) AS meter, unnest($4::text[]) AS customer) k
		CROSS JOIN LATERAL (SELECT ` + counterColumns + ` FROM counters
			WHERE tenant_id = $1 AND month = k.month AND meter = k.meter AND customer = k.customer LIMIT 1) c`}
	countersFrom = &statement{name: "counters_from", sql: "SELECT " + counterColumns + ` FROM counters
		WHERE tenant_id = $1 AND (month, meter, customer) >= ($2::date, $3::text, $4::text)
		ORDER BY month, meter, customer LIMIT $5`}
	nextMonth = &statement{name: "next_month", sql: `SELECT month FROM counters
		WHERE tenant_id = $1 AND month >= $2 ORDER BY month LIMIT 1`}

	putTallies = &statement{name: "put_tallies", sql: `INSERT INTO tallies (tenant_id, month, meter, used, alerted)
		SELECT h.tenant_id, unnest($2::date[]), unnest($3::text[]), unnest($4::numeric[]),
			unnest($5::smallint[])
		FROM heads h WHERE h.tenant_id = $1 ON CONFLICT (tenant_id, month, meter) DO UPDATE
			SET used = excluded.used, alerted = excluded.alerted`}
	talliesByKey = &statement{name: "tallies_by_key", sql: `SELECT t.*
		FROM (SELECT unnest($2::date[]) AS month, unnest($3::text[]) AS meter) k
		CROSS JOIN LATERAL (SELECT month, meter, used, alerted FROM tallies
			WHERE tenant_id = $1 AND month = k.month AND meter = k.meter LIMIT 1) t`}
	putMembers = &statement{name: "put_members", sql: "INSERT INTO members (tenant_id, " + counterKey + `,
			member, generation, on_time)
		SELECT h.tenant_id, unnest($2::date[]), unnest($3::text[]), unnest($4::text[]), unnest($5::text[]),
			unnest($6::integer[]), unnest($7::boolean[])
		FROM heads h WHERE h.tenant_id = $1
		ON CONFLICT (tenant_id, month, meter, customer, member, generation) DO UPDATE
			SET on_time = excluded.on_time`}
	membersByKey = &statement{name: "members_by_key", sql: `SELECT m.*
		FROM unnest($2::date[], $3::text[], $4::text[], $5::text[]) AS k(month, meter, customer, member)
		CROSS JOIN LATERAL (SELECT ` + counterKey + `, member, generation, on_time FROM members
			WHERE tenant_id = $1 AND month = k.month AND meter = k.meter AND customer = k.customer
				AND member = k.member OFFSET 0) m`}
)

// Hours. The rows are read in step with what else a transaction of the roller needs, and nothing of them that it does
// not: properties are most of their bytes.
var (
	behind = &statement{name: "behind", sql: `SELECT h.tenant_id FROM heads h
		LEFT JOIN rollups r ON r.tenant_id = h.tenant_id
		WHERE h.tenant_id > $1 AND h.seq > coalesce(r.seq, 0) ORDER BY h.tenant_id LIMIT $2`}
	makeRollup = &statement{name: "make_rollup", sql: `INSERT INTO rollups (tenant_id, seq) VALUES ($1, 0)
		ON CONFLICT (tenant_id) DO NOTHING`}
	lockRollup = &statement{name: "lock_rollup", sql: `SELECT seq FROM rollups WHERE tenant_id = $1
		FOR UPDATE SKIP LOCKED`}
	readRollup = &statement{name: "read_rollup", sql: "SELECT seq FROM rollups WHERE tenant_id = $1"}
	moveRollup = &statement{name: "move_rollup", sql: "UPDATE rollups SET seq = $2 WHERE tenant_id = $1"}
	dropRollup = &statement{name: "drop_rollup", sql: `WITH days AS (DELETE FROM usage_days WHERE tenant_id = $1)
		UPDATE rollups SET seq = 0 WHERE tenant_id = $1`}
	rowsToRollUp = &statement{name: "rows_to_roll_up", choosy: true, sql: `SELECT seq, time, quantity, customer, meter,
			corrects, CASE WHEN $4 THEN key END, outcomes
		FROM usage_events WHERE tenant_id = $1 AND seq > $2 AND seq <= $3 AND seq > 0 ORDER BY seq`}
	daysByKey = &statement{name: "days_by_key", sql: `SELECT d.* FROM (SELECT unnest($2::integer[]) AS meter,
			unnest($3::date[]) AS month, unnest($4::text[]) AS customer, unnest($5::date[]) AS day) k
		CROSS JOIN LATERAL (SELECT meter, customer, day, hours FROM usage_days
			WHERE tenant_id = $1 AND meter = k.meter AND month = k.month AND customer = k.customer AND day = k.day
			LIMIT 1) d`}
	putDays = &statement{name: "put_days", sql: `INSERT INTO usage_days (tenant_id, meter, month, customer, day, hours)
		SELECT h.tenant_id, unnest($2::integer[]), unnest($3::date[]), unnest($4::text[]), unnest($5::date[]),
			unnest($6::bytea[])
		FROM heads h WHERE h.tenant_id = $1
		ON CONFLICT (tenant_id, meter, month, customer, day) DO UPDATE SET hours = excluded.hours`}
	daysOfCustomer = &statement{name: "days_of_customer", sql: `SELECT meter, customer, day, hours FROM usage_days
		WHERE tenant_id = $1 AND meter = $2 AND month = $3 AND customer = $4`}
	daysOfAll = &statement{name: "days_of_all", sql: `SELECT meter, customer, day, hours FROM usage_days
		WHERE tenant_id = $1 AND meter = $2 AND month = $3 AND customer > ''`}
)

// writable distinguishes a replica, or a server that fails over, from one that can commit.
var writable = &statement{name: "writable", sql: `SELECT NOT pg_is_in_recovery()
	AND current_setting('default_transaction_read_only') = 'off'`}
