-- Whether Slurm said that a run's job is its owner's; what the run's records take; when it was heard of last. MariaDB reads the comments.
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ verified BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ heard_s DOUBLE NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS runs_by_owner ON runs (uid, state);
-- What the node services themselves counted, beside what the run's user says of their counters.
ALTER TABLE counters ADD COLUMN /*! IF NOT EXISTS */ metered_j DOUBLE;
-- A run of somebody whose name is taken bears the owner's number behind it.
/*! ALTER TABLE events MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE runs MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE records MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE phases MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE counters MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE checkpoints MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE failures MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE decisions MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE loans MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE lending MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE orders MODIFY run VARCHAR(160) NOT NULL */;
/*! ALTER TABLE resumed MODIFY run VARCHAR(160) NOT NULL */;
