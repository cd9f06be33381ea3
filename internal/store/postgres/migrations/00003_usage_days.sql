-- +goose Up

-- Up to which row usage has been added up by the hour. Whoever adds up holds this row: it moves in the same transaction
-- as the days below, so that no row is added twice and none is left out, whichever node does it.
CREATE TABLE rollups (
    tenant_id text COLLATE "C" NOT NULL PRIMARY KEY CHECK (tenant_id <> ''),
    seq       bigint NOT NULL CHECK (seq >= 0)
) WITH (fillfactor = 50);

-- What was used of a meter in the hours of a day, by one customer; customer '' stands for all of them together. It
-- follows from the rows: both tables can be emptied at any time, together, and fill again by themselves.
CREATE TABLE usage_days (
    meter     integer NOT NULL,
    month     date NOT NULL,
    day       date NOT NULL,
    tenant_id text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    customer  text COLLATE "C" NOT NULL,
    hours     bytea NOT NULL,
    PRIMARY KEY (tenant_id, meter, month, customer, day)
) WITH (fillfactor = 70);

ALTER TABLE rollups ENABLE ROW LEVEL SECURITY;
ALTER TABLE rollups FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON rollups AS PERMISSIVE FOR ALL TO tallystick_serve
    USING (tenant_id = current_setting('tallystick.tenant', true))
    WITH CHECK (tenant_id = current_setting('tallystick.tenant', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON rollups TO tallystick_serve;

ALTER TABLE usage_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE usage_days FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON usage_days AS PERMISSIVE FOR ALL TO tallystick_serve
    USING (tenant_id = current_setting('tallystick.tenant', true))
    WITH CHECK (tenant_id = current_setting('tallystick.tenant', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON usage_days TO tallystick_serve;

-- The directory also reads how far each ledger has been added up: whoever adds up looks for those that are behind.
CREATE POLICY directory ON rollups AS PERMISSIVE FOR SELECT TO tallystick_directory USING (true);
GRANT SELECT (tenant_id, seq) ON rollups TO tallystick_directory;
