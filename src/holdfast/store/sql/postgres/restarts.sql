-- name: restarts_to_prune
-- Old settled restarts, oldest first; never the last one, which operators look at.
-- Differs: they are locked, and rows that are locked already are skipped, so that two processes cannot deadlock.
SELECT id FROM restarts
 WHERE status IN ('blocked', 'recovered') AND updated_at <= :older_than
   AND id < (SELECT MAX(newest.id) FROM restarts AS newest)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
