-- How far a run is protected: the state for sums, and all that its user is told. MariaDB reads the comments.
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ protection_state VARCHAR(32);
ALTER TABLE runs ADD COLUMN /*! IF NOT EXISTS */ protection MEDIUMTEXT;
