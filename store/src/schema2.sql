-- What the history of a user's job, the end of a window and the keeping time look up.
CREATE INDEX IF NOT EXISTS runs_by_name ON runs (user, job_name, start_s);
CREATE INDEX IF NOT EXISTS runs_by_end ON runs (end_s);
CREATE UNIQUE INDEX IF NOT EXISTS loans_once ON loans (cluster, run, node, start_s);
CREATE INDEX IF NOT EXISTS calibrations_by_target ON calibrations (node_type, target, at_s);
