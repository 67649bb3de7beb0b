-- name: restarts_to_prune
-- Old restarts of which everything has become something, oldest first; never the last one, which people ask for.
-- Differs: they are locked, so that two of us do not wait for each other; busy ones are skipped.
SELECT id FROM restarts
 WHERE status IN ('blocked', 'recovered') AND updated_at <= :older_than
   AND id < (SELECT MAX(newest.id) FROM restarts AS newest)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
