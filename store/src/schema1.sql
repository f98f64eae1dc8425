-- The store of the controller service, version 1. Times are seconds since the epoch, energies joules.
CREATE TABLE IF NOT EXISTS events (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, seq BIGINT NOT NULL, at_s DOUBLE NOT NULL,
    json MEDIUMTEXT NOT NULL,
    PRIMARY KEY (cluster, run, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, job BIGINT NOT NULL, uid BIGINT NOT NULL,
    user VARCHAR(255) NOT NULL,
    account VARCHAR(255) NOT NULL, "partition" VARCHAR(255) NOT NULL, job_name VARCHAR(255) NOT NULL,
    state VARCHAR(32) NOT NULL,
    start_s DOUBLE NOT NULL, end_s DOUBLE, restart_count BIGINT NOT NULL, plan MEDIUMTEXT,
    PRIMARY KEY (cluster, run)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_by_job ON runs (job);
CREATE INDEX IF NOT EXISTS runs_by_start ON runs (start_s);
CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state);
CREATE TABLE IF NOT EXISTS records (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, restart_count BIGINT NOT NULL, job BIGINT NOT NULL,
    start_s DOUBLE NOT NULL, end_s DOUBLE, state VARCHAR(32) NOT NULL, nodes MEDIUMTEXT NOT NULL,
    PRIMARY KEY (cluster, run, restart_count)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS phases (
    id INTEGER PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, restart_count BIGINT NOT NULL,
    recovery_group BIGINT NOT NULL DEFAULT 0, node VARCHAR(255) NOT NULL, phase VARCHAR(32) NOT NULL,
    start_s DOUBLE NOT NULL, end_s DOUBLE NOT NULL, joules DOUBLE, source VARCHAR(255) NOT NULL
);
CREATE INDEX IF NOT EXISTS phases_by_run ON phases (cluster, run, restart_count, node);
CREATE TABLE IF NOT EXISTS counters (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, restart_count BIGINT NOT NULL,
    node VARCHAR(255) NOT NULL, since_s DOUBLE NOT NULL,
    at_s DOUBLE NOT NULL, joules DOUBLE NOT NULL, source VARCHAR(255) NOT NULL,
    PRIMARY KEY (cluster, run, restart_count, node, since_s)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoints (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, number BIGINT NOT NULL, begun_s DOUBLE NOT NULL,
    ended_s DOUBLE NOT NULL,
    bytes BIGINT NOT NULL, joules DOUBLE,
    PRIMARY KEY (cluster, run, number, begun_s)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failures (
    id INTEGER PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, kind VARCHAR(32) NOT NULL,
    node VARCHAR(255),
    at_s DOUBLE NOT NULL, detected_s DOUBLE NOT NULL, counts BIGINT NOT NULL, reason MEDIUMTEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS failures_by_run ON failures (cluster, run);
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, at_s DOUBLE NOT NULL,
    action VARCHAR(255) NOT NULL,
    reason MEDIUMTEXT NOT NULL, interval_s DOUBLE NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_run ON decisions (cluster, run);
-- Nodes as they were watched, and their deaths: what the MTBF rests on.
CREATE TABLE IF NOT EXISTS nodes (node VARCHAR(255) PRIMARY KEY, watched_s DOUBLE NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS node_failures (node VARCHAR(255) NOT NULL, at_s DOUBLE NOT NULL,
    detected_s DOUBLE NOT NULL, reason MEDIUMTEXT NOT NULL,
    PRIMARY KEY (node, at_s)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS loans (
    id INTEGER PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, node VARCHAR(255) NOT NULL,
    borrower BIGINT,
    start_s DOUBLE NOT NULL, end_s DOUBLE, joules DOUBLE
);
CREATE TABLE IF NOT EXISTS calibrations (
    id INTEGER PRIMARY KEY, node_type VARCHAR(255) NOT NULL, target VARCHAR(255) NOT NULL, at_s DOUBLE NOT NULL,
    json MEDIUMTEXT NOT NULL
);
