-- For how long the program stood still for a checkpoint, s. MariaDB reads the comment.
ALTER TABLE checkpoints ADD COLUMN /*! IF NOT EXISTS */ still_s DOUBLE;
