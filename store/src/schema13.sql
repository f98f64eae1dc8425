-- How much of a checkpoint was written for it; the rest shares copies of an earlier one. MariaDB reads the comments.
ALTER TABLE checkpoints ADD COLUMN /*! IF NOT EXISTS */ written_bytes BIGINT;
