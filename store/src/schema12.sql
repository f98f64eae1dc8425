-- The job as Slurm's commands name it, and its array: what people know it by. MariaDB reads the comments.
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ slurm_id VARCHAR(64);
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ array_job BIGINT;
CREATE INDEX IF NOT EXISTS runs_by_array ON runs (array_job);
