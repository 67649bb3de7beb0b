-- name: integrity_check
-- SQLite's own check of every page and index.
-- Differs: only SQLite can check its file from inside.
PRAGMA integrity_check(100);

-- name: schema_columns
-- Every existing column, with its table.
-- Differs: SQLite lists its schema in a table of its own.
SELECT sqlite_schema.name, columns.name
  FROM sqlite_schema JOIN pragma_table_xinfo(sqlite_schema.name) AS columns
 WHERE sqlite_schema.type = 'table';

-- name: taken_names
-- The names of all tables, views and indexes; a view with its text.
-- Differs: SQLite lists its schema in a table of its own.
SELECT name, CASE WHEN type = 'view' THEN sql END FROM sqlite_schema;

-- name: schema_indexes
-- Every existing index.
-- Differs: SQLite lists its schema in a table of its own.
SELECT name FROM sqlite_schema WHERE type = 'index';
