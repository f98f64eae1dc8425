-- The checkpoint from which a record went on: its volume is what the restart brought back.
CREATE TABLE IF NOT EXISTS resumed (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, restart_count BIGINT NOT NULL, number BIGINT NOT NULL,
    PRIMARY KEY (cluster, run, restart_count)
) WITHOUT ROWID;
