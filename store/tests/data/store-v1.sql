-- The store of the controller service, version 1. Times are seconds since the epoch, energies joules.
CREATE TABLE events (
    cluster TEXT NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, at_s REAL NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (cluster, run, seq)
) WITHOUT ROWID;
CREATE TABLE runs (
    cluster TEXT NOT NULL, run TEXT NOT NULL, job INTEGER NOT NULL, uid INTEGER NOT NULL, user TEXT NOT NULL,
    account TEXT NOT NULL, partition TEXT NOT NULL, job_name TEXT NOT NULL, state TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL, restart_count INTEGER NOT NULL, plan TEXT,
    PRIMARY KEY (cluster, run)
) WITHOUT ROWID;
CREATE INDEX runs_by_job ON runs (job);
CREATE INDEX runs_by_start ON runs (start_s);
CREATE INDEX runs_by_state ON runs (state);
CREATE TABLE records (
    cluster TEXT NOT NULL, run TEXT NOT NULL, restart_count INTEGER NOT NULL, job INTEGER NOT NULL,
    start_s REAL NOT NULL, end_s REAL, state TEXT NOT NULL, nodes TEXT NOT NULL,
    PRIMARY KEY (cluster, run, restart_count)
) WITHOUT ROWID;
CREATE TABLE phases (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, run TEXT NOT NULL, restart_count INTEGER NOT NULL,
    recovery_group INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL, phase TEXT NOT NULL,
    start_s REAL NOT NULL, end_s REAL NOT NULL, joules REAL, source TEXT NOT NULL
);
CREATE INDEX phases_by_run ON phases (cluster, run, restart_count, node);
CREATE TABLE counters (
    cluster TEXT NOT NULL, run TEXT NOT NULL, restart_count INTEGER NOT NULL, node TEXT NOT NULL, since_s REAL NOT NULL,
    at_s REAL NOT NULL, joules REAL NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (cluster, run, restart_count, node, since_s)
) WITHOUT ROWID;
CREATE TABLE checkpoints (
    cluster TEXT NOT NULL, run TEXT NOT NULL, number INTEGER NOT NULL, begun_s REAL NOT NULL, ended_s REAL NOT NULL,
    bytes INTEGER NOT NULL, joules REAL,
    PRIMARY KEY (cluster, run, number, begun_s)
) WITHOUT ROWID;
CREATE TABLE failures (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL, node TEXT,
    at_s REAL NOT NULL, detected_s REAL NOT NULL, counts INTEGER NOT NULL, reason TEXT NOT NULL
);
CREATE INDEX failures_by_run ON failures (cluster, run);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, run TEXT NOT NULL, at_s REAL NOT NULL, action TEXT NOT NULL,
    reason TEXT NOT NULL, interval_s REAL NOT NULL
);
CREATE INDEX decisions_by_run ON decisions (cluster, run);
-- Nodes as they were watched, and their deaths: what the MTBF rests on.
CREATE TABLE nodes (node TEXT PRIMARY KEY, watched_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE node_failures (node TEXT NOT NULL, at_s REAL NOT NULL, detected_s REAL NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (node, at_s)) WITHOUT ROWID;
-- Filled by later versions.
CREATE TABLE loans (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, run TEXT NOT NULL, node TEXT NOT NULL, borrower INTEGER,
    start_s REAL NOT NULL, end_s REAL, joules REAL
);
CREATE TABLE calibrations (
    id INTEGER PRIMARY KEY, node_type TEXT NOT NULL, target TEXT NOT NULL, at_s REAL NOT NULL, json TEXT NOT NULL
);
PRAGMA user_version = 1;
