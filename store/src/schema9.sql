-- The newest holder of each run: what one before it sends anew is refused.
CREATE TABLE IF NOT EXISTS holders (
    cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, holder BIGINT NOT NULL,
    PRIMARY KEY (cluster, run)
) WITHOUT ROWID;
