-- name: integrity_check
-- SQLite's own check of every page and index.
-- Differs: only SQLite can check its file from inside.
PRAGMA integrity_check(100);
