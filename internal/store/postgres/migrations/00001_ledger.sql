-- +goose Up

-- Roles belong to the whole server, so another database of it may have made them already, or be making them now.
-- +goose StatementBegin
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tallystick_serve', 'tallystick_directory', 'tallystick_prune'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS',
                    role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        -- A superuser becomes any role. Others must be members; one that may not grant it has been made a member, or is
        -- refused at start.
        IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER) THEN
            BEGIN
                EXECUTE format('GRANT %I TO CURRENT_USER', role);
            EXCEPTION WHEN insufficient_privilege OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Names and keys are ordered by their bytes on every store, hence the collation.

-- Where each tenant's ledger stands. Every commit locks its tenant's row here first.
-- resident_version names the resident entities, the used meters and the critical kinds that the head's row leaves
-- behind: a node that remembers another version reads them again.
-- tree is the Merkle tree over all rows: its size as a varint, then its peaks, 32 bytes each, the largest subtree first.
-- This table and the next check the tenant alone, no other values: the server prepares each check anew for every
-- statement, which a commit of one event would feel.
CREATE TABLE heads (
    tenant_id        text COLLATE "C" NOT NULL PRIMARY KEY CHECK (tenant_id <> ''),
    seq              bigint NOT NULL,
    tree             bytea NOT NULL,
    clock            timestamptz NOT NULL,
    resident_version bigint NOT NULL
) WITH (fillfactor = 10);

-- One row for each commit: which rows it added, and when. The token is the commit's own random number: a node that lost
-- its connection during the commit finds out by it whether the commit happened.
CREATE TABLE sections (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    first_seq bigint NOT NULL,
    row_count integer NOT NULL,
    at        timestamptz NOT NULL,
    token     bytea NOT NULL,
    PRIMARY KEY (tenant_id, first_seq)
);

-- The usage events, corrections among them. The key is the name space (c: the client's id, d: derived) and the name.
-- meter is empty for an event that a type fed to several meters. outcomes is null for the plain row: one meter, on
-- time, value = quantity; else it is a JSON array with an object for each meter. properties is a JSON object. by is the
-- API key or the source that brought the event.
-- prev is the row that the same counter folded before this one, null for its first; where there are outcomes each has
-- its own. So the rows of a counter are a chain that begins at its tail, which costs nothing to keep; an index by
-- customer would be half of the price of a row.
-- Columns of fixed length stand first: they need no padding there.
CREATE TABLE usage_events (
    seq        bigint NOT NULL CHECK (seq > 0),
    at         timestamptz NOT NULL,
    time       timestamptz NOT NULL,
    prev       bigint,
    given      smallint NOT NULL,
    adjusted   boolean NOT NULL,
    tenant_id  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL CHECK (key > 'c' AND key < 'e'),
    quantity   numeric(38, 12) NOT NULL,
    meter      text COLLATE "C" NOT NULL,
    customer   text COLLATE "C" NOT NULL,
    event_type text COLLATE "C",
    resource   text COLLATE "C",
    client_id  text COLLATE "C",
    properties text COLLATE "C",
    corrects   text COLLATE "C",
    reason     text COLLATE "C",
    by         text COLLATE "C",
    outcomes   text COLLATE "C",
    PRIMARY KEY (tenant_id, key),
    CHECK (quantity >= 0 OR corrects IS NOT NULL),
    CHECK ((corrects IS NULL) = (reason IS NULL))
);
-- It holds every row. Its condition keeps the planner from using it for anything but the statements that repeat it:
-- while it knows nothing of a table, any index that begins with the tenant looks as good to it as the primary key.
CREATE UNIQUE INDEX usage_events_seq ON usage_events (tenant_id, seq) WHERE seq > 0;
CREATE INDEX usage_events_corrects ON usage_events (tenant_id, corrects, seq) WHERE corrects IS NOT NULL;

-- The entries of accounts: what was sent, and what the server decided. sequence is the source's own number of the
-- entry. given says which parts the client sent: 1 the time, 2 the sequence. metadata is a JSON object. by is the API key
-- or the source that brought the entry.
CREATE TABLE entries (
    seq             bigint NOT NULL CHECK (seq > 0),
    at              timestamptz NOT NULL,
    time            timestamptz NOT NULL,
    expires_at      timestamptz,
    version         bigint NOT NULL,
    given           smallint NOT NULL,
    system          boolean NOT NULL,
    late            boolean NOT NULL,
    gap             boolean NOT NULL,
    tenant_id       text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    id              text COLLATE "C" NOT NULL,
    account         text COLLATE "C" NOT NULL,
    type            text COLLATE "C" NOT NULL CHECK (type IN ('credit', 'debit', 'hold', 'release')),
    amount          numeric(38, 12) NOT NULL,
    balance         numeric(38, 12) NOT NULL,
    held            numeric(38, 12) NOT NULL,
    sequence        numeric(20, 0) NOT NULL,
    counter_account text COLLATE "C",
    transfer        text COLLATE "C",
    hold            text COLLATE "C",
    corrects        text COLLATE "C",
    reason          text COLLATE "C",
    metadata        text COLLATE "C",
    by              text COLLATE "C",
    PRIMARY KEY (tenant_id, seq)
);

-- Every other row of the ledger: the audit event, and the entity as it is from then on. Rows that leave no entity
-- behind have null in the columns from version on. version is of the codec that wrote data, a JSON object.
CREATE TABLE changes (
    tenant_id   text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    seq         bigint NOT NULL CHECK (seq > 0),
    at          timestamptz NOT NULL,
    type        text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    actor       text COLLATE "C" NOT NULL,
    entity_type text COLLATE "C" NOT NULL,
    entity_id   text COLLATE "C" NOT NULL,
    payload     text COLLATE "C" NOT NULL,
    version     smallint,
    critical    boolean,
    kind        text COLLATE "C",
    id          text COLLATE "C",
    data        text COLLATE "C",
    PRIMARY KEY (tenant_id, seq)
);
-- An entity as it was when a row had been committed.
CREATE INDEX changes_entity ON changes (tenant_id, kind, id, seq) WHERE kind IS NOT NULL;
-- The audit log's filters. Two that are both common and never together would take long to intersect, so they have an
-- index as a pair.
CREATE INDEX changes_at ON changes (tenant_id, at, seq);
CREATE INDEX changes_entity_id ON changes (tenant_id, entity_id, seq);
CREATE INDEX changes_entity_type ON changes (tenant_id, entity_type, seq);
CREATE INDEX changes_entity_source ON changes (tenant_id, entity_type, source, seq);
CREATE INDEX changes_type ON changes (tenant_id, type, seq);
CREATE INDEX changes_type_source ON changes (tenant_id, type, source, seq);
CREATE INDEX changes_source ON changes (tenant_id, source, seq);

-- The hashes of the tree's full tiles: a tile of level 1 covers 256 rows, one of each other level 256 tiles. index counts
-- the tiles of a level from 0. They follow from the rows, and stay when the rows of a tile leave.
CREATE TABLE tiles (
    index     bigint NOT NULL,
    level     smallint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    hash      bytea NOT NULL,
    PRIMARY KEY (tenant_id, level, index)
);

-- The leaves of rows that have left a tile of which something stays. Without them the tile could not be hashed again.
CREATE TABLE leaves (
    seq       bigint NOT NULL CHECK (seq > 0),
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    hash      bytea NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);

-- The latest state of each entity, whatever its kind; a row of changes has the same. indexed is the version of the
-- kind's declaration that entity_terms holds the terms of; 0: whoever wrote it did not know the kind. What has expired
-- may be taken away, its row of changes stays.
CREATE TABLE entities (
    seq        bigint NOT NULL CHECK (seq > 0),
    at         timestamptz NOT NULL,
    expires_at timestamptz,
    version    smallint NOT NULL,
    indexed    smallint NOT NULL,
    critical   boolean NOT NULL,
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    kind       text COLLATE "C" NOT NULL CHECK (kind <> ''),
    id         text COLLATE "C" NOT NULL CHECK (id <> ''),
    data       text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, kind, id)
);
-- For the list of tenants, which passes over all else.
CREATE INDEX entities_tenants ON entities (tenant_id) WHERE kind = 'tenant';
CREATE INDEX entities_expiry ON entities (tenant_id, kind, expires_at) WHERE expires_at IS NOT NULL;
-- Entities whose terms are of an older declaration than a build has are found here. Which those are differs from build
-- to build, so the index holds all that can have terms: entities that expire have none.
CREATE INDEX entities_indexed ON entities (tenant_id, kind, indexed, id) WHERE expires_at IS NULL;

-- By which values entities are found. This is derived from entities, and rows go when an entity changes.
CREATE TABLE entity_terms (
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    kind       text COLLATE "C" NOT NULL,
    index_name text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, kind, index_name, value, id)
);
-- For those that go. Its condition holds for every row, and keeps the planner from searching by it.
CREATE INDEX entity_terms_of ON entity_terms (tenant_id, kind, id) WHERE id <> '';

-- The critical kinds that a ledger has met, by version, and the first row of each: a build that does not know one of
-- them must not serve the tenant.
CREATE TABLE critical_kinds (
    seq       bigint NOT NULL CHECK (seq > 0),
    version   smallint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    kind      text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, kind, version)
);

-- The meters that have events, by number.
CREATE TABLE used_meters (
    number    bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    PRIMARY KEY (tenant_id, number)
);

-- The counters: the fold of the on-time rows, and that of all rows once it differs. tail is the last row that was
-- folded.
CREATE TABLE counters (
    tenant_id    text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    month        date NOT NULL,
    meter        text COLLATE "C" NOT NULL,
    customer     text COLLATE "C" NOT NULL,
    watermark    timestamptz,
    generation   integer NOT NULL,
    tail         bigint,
    manual       numeric(38, 12),
    sealed       numeric(38, 12),
    count        bigint NOT NULL,
    sum          numeric(38, 12) NOT NULL,
    min          numeric(38, 12) NOT NULL,
    max          numeric(38, 12) NOT NULL,
    at_min       bigint NOT NULL,
    at_max       bigint NOT NULL,
    last         numeric(38, 12) NOT NULL,
    last_time    timestamptz NOT NULL,
    last_key     text COLLATE "C" NOT NULL,
    members      bigint NOT NULL,
    all_count     bigint,
    all_sum       numeric(38, 12),
    all_min       numeric(38, 12),
    all_max       numeric(38, 12),
    all_at_min    bigint,
    all_at_max    bigint,
    all_last      numeric(38, 12),
    all_last_time timestamptz,
    all_last_key  text COLLATE "C",
    all_members   bigint,
    alerted       smallint,
    PRIMARY KEY (tenant_id, month, meter, customer)
) WITH (fillfactor = 50);

-- The members of unique meters. Taking a member out of a counter starts the next generation of all of its members.
CREATE TABLE members (
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    month      date NOT NULL,
    meter      text COLLATE "C" NOT NULL,
    customer   text COLLATE "C" NOT NULL,
    member     text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    on_time    boolean NOT NULL,
    PRIMARY KEY (tenant_id, month, meter, customer, member, generation)
);

-- What all customers used of a meter in a month, which quotas are judged by. alerted is the highest threshold, in
-- percent, that was reported; a counter has its customer's own.
CREATE TABLE tallies (
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    month     date NOT NULL,
    meter     text COLLATE "C" NOT NULL,
    used      numeric(38, 12) NOT NULL,
    alerted   smallint NOT NULL,
    PRIMARY KEY (tenant_id, month, meter)
) WITH (fillfactor = 10);

-- Walls: whoever reads or writes, also the owner, sees the rows of the tenant that the transaction named, and none when
-- it named none. The condition is plain: a distributed PostgreSQL refuses subqueries in policies.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
    mine text := 'tenant_id = current_setting(''tallystick.tenant'', true)';
BEGIN
    FOREACH name IN ARRAY ARRAY['heads', 'sections', 'usage_events', 'entries', 'changes', 'tiles', 'leaves',
            'entities', 'entity_terms', 'critical_kinds', 'used_meters', 'counters', 'members', 'tallies'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_wall ON %I AS PERMISSIVE FOR ALL TO tallystick_serve '
            'USING (%s) WITH CHECK (%s)', name, mine, mine);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO tallystick_serve', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['heads', 'entities', 'counters', 'members', 'tallies'] LOOP
        EXECUTE format('GRANT UPDATE ON %I TO tallystick_serve', name);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO tallystick_serve, tallystick_directory, tallystick_prune',
        current_schema());
END
$$;
-- +goose StatementEnd

-- Whoever serves takes no row of the ledger away. What it may delete is derived and can be made again from changes:
-- terms, and, of entities, those that expire.
GRANT DELETE ON entity_terms, entities TO tallystick_serve;
CREATE POLICY forget ON entities AS RESTRICTIVE FOR DELETE TO tallystick_serve USING (expires_at IS NOT NULL);

-- The directory reads all tenants and nothing else of them.
CREATE POLICY directory ON entities AS PERMISSIVE FOR SELECT TO tallystick_directory USING (kind = 'tenant');
GRANT SELECT ON entities TO tallystick_directory;

-- Only pruning may take rows away, and only usage rows of the tenant it named. It alone keeps leaves of them. It reads
-- the head to find where the tenant is; see addPlainEvents.
CREATE POLICY prune ON usage_events AS PERMISSIVE FOR ALL TO tallystick_prune
    USING (tenant_id = current_setting('tallystick.tenant', true));
CREATE POLICY prune ON leaves AS PERMISSIVE FOR ALL TO tallystick_prune
    USING (tenant_id = current_setting('tallystick.tenant', true));
CREATE POLICY prune ON heads AS PERMISSIVE FOR ALL TO tallystick_prune
    USING (tenant_id = current_setting('tallystick.tenant', true));
GRANT SELECT, DELETE ON usage_events TO tallystick_prune;
GRANT SELECT, INSERT, DELETE ON leaves TO tallystick_prune;
GRANT SELECT ON heads TO tallystick_prune;
REVOKE INSERT ON leaves FROM tallystick_serve;
