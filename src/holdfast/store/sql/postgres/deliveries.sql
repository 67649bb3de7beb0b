-- name: deliveries_to_prune
-- Old settled deliveries whose task is gone, oldest first; others are deleted with their task.
-- Differs: they are locked, and rows that are locked already are skipped, so that two processes cannot deadlock.
SELECT id FROM deliveries
 WHERE status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed')
   AND updated_at <= :older_than
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = deliveries.task_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
