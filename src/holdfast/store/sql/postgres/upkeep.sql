-- name: integrity_check
-- Indexes and constraints that the catalog reports as invalid.
-- Differs: PostgreSQL checks its pages itself when it reads them (initdb --data-checksums), so this is all to check.
SELECT 'index ' || indexrelid::regclass || ' is not valid; REINDEX it'
  FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
 WHERE pg_class.relnamespace = CAST('holdfast' AS regnamespace) AND NOT (indisvalid AND indisready)
 UNION ALL
SELECT 'constraint ' || conname || ' of ' || conrelid::regclass || ' is not validated'
  FROM pg_constraint
 WHERE connamespace = CAST('holdfast' AS regnamespace) AND NOT convalidated
 ORDER BY 1
 LIMIT 100;

-- name: schema_columns
-- Every existing column, with its table.
-- Differs: PostgreSQL lists its schema in its catalog.
SELECT CAST(pg_class.relname AS text), CAST(attname AS text)
  FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
 WHERE pg_class.relnamespace = CAST('holdfast' AS regnamespace) AND pg_class.relkind IN ('r', 'p')
   AND attnum > 0 AND NOT attisdropped;

-- name: taken_names
-- The names of all tables, views and indexes; a view with its comment.
-- Differs: PostgreSQL lists its schema in its catalog.
SELECT CAST(relname AS text), CASE WHEN relkind = 'v' THEN obj_description(oid, 'pg_class') END
  FROM pg_class
 WHERE relnamespace = CAST('holdfast' AS regnamespace);

-- name: schema_indexes
-- Every existing index.
-- Differs: PostgreSQL lists its schema in its catalog.
SELECT CAST(relname AS text) FROM pg_class
 WHERE relnamespace = CAST('holdfast' AS regnamespace) AND relkind IN ('i', 'I');
