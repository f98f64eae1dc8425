-- Jobs that share a lent node may begin there in the same second; nobody is job 0. MariaDB reads the last comment.
UPDATE loans SET borrower = 0 WHERE borrower IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS loans_once_each ON loans (cluster, run, node, start_s, borrower);
DROP INDEX IF EXISTS loans_once /*! ON loans */;
