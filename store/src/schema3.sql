-- Loans as the broker drives them: the state is here before anything of it is done.
CREATE TABLE IF NOT EXISTS lending (
    id VARCHAR(64) PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, uid BIGINT NOT NULL,
    state VARCHAR(32) NOT NULL, asked_s DOUBLE NOT NULL, json MEDIUMTEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lending_by_run ON lending (cluster, run);
CREATE INDEX IF NOT EXISTS lending_by_time ON lending (asked_s);
