-- +goose Up

-- Where those stand who follow a ledger: position is the last row that a follower is done with, note what it has to
-- remember there. It has nothing to do before due, in microseconds since 1970, 0 when there is no such time; failing says
-- that it is behind because what it does fails. This is no part of the ledger. Whoever moves it has the claim: owner until expires_at, with a fence
-- that is greater than that of every claim before, so that a node that was paused moves nothing when it wakes up.
CREATE TABLE followings (
    position   bigint NOT NULL CHECK (position >= 0),
    due        bigint NOT NULL,
    fence      bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    failing    boolean NOT NULL,
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id <> ''),
    follower   text COLLATE "C" NOT NULL CHECK (follower <> ''),
    owner      text COLLATE "C" NOT NULL,
    note       bytea NOT NULL,
    PRIMARY KEY (tenant_id, follower)
) WITH (fillfactor = 50);

ALTER TABLE followings ENABLE ROW LEVEL SECURITY;
ALTER TABLE followings FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_wall ON followings AS PERMISSIVE FOR ALL TO tallystick_serve
    USING (tenant_id = current_setting('tallystick.tenant', true))
    WITH CHECK (tenant_id = current_setting('tallystick.tenant', true));
GRANT SELECT, INSERT, UPDATE, DELETE ON followings TO tallystick_serve;

-- The directory also reads how far each ledger has come and who follows it, for those who follow all: no note, nothing
-- of a tree.
CREATE POLICY directory ON heads AS PERMISSIVE FOR SELECT TO tallystick_directory USING (true);
CREATE POLICY directory ON followings AS PERMISSIVE FOR SELECT TO tallystick_directory USING (true);
GRANT SELECT (tenant_id, seq) ON heads TO tallystick_directory;
GRANT SELECT (tenant_id, follower, position, due, failing, expires_at) ON followings TO tallystick_directory;
