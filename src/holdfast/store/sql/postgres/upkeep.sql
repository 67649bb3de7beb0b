-- name: integrity_check
-- What the catalog knows to be unfinished or not enforced.
-- Differs: PostgreSQL checks its pages when it reads them (initdb --data-checksums); only this is left to ask.
SELECT 'index ' || indexrelid::regclass || ' is not valid; REINDEX it'
  FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
 WHERE pg_class.relnamespace = CAST('holdfast' AS regnamespace) AND NOT (indisvalid AND indisready)
 UNION ALL
SELECT 'constraint ' || conname || ' of ' || conrelid::regclass || ' is not validated'
  FROM pg_constraint
 WHERE connamespace = CAST('holdfast' AS regnamespace) AND NOT convalidated
 ORDER BY 1
 LIMIT 100;
