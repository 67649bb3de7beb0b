-- name: applied_migrations
-- Number and digest of each migration that the database has.
SELECT number, digest FROM schema_migrations ORDER BY number;
