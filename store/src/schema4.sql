-- Orders of people for runs: kept before they are answered for, so that they outlive the controller.
CREATE TABLE IF NOT EXISTS orders (
    id VARCHAR(64) PRIMARY KEY, cluster VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL, uid BIGINT NOT NULL,
    restart_count BIGINT NOT NULL, after_seq BIGINT NOT NULL, at_s DOUBLE NOT NULL, taken BIGINT NOT NULL,
    json MEDIUMTEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS orders_by_time ON orders (at_s);
