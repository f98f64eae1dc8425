-- What must outlive the controller of each node that it watches: boot, epoch, witnesses, what must end there.
CREATE TABLE IF NOT EXISTS node_watch (
    node VARCHAR(255) PRIMARY KEY, known MEDIUMTEXT NOT NULL, is_down BIGINT NOT NULL, url MEDIUMTEXT NOT NULL
) WITHOUT ROWID;
