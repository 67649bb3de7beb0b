-- name: deliveries_to_prune
-- Old deliveries that nobody will send any more and whose task is gone, oldest first; others go with their task.
-- Differs: they are locked, so that two of us do not wait for each other; busy ones are skipped.
SELECT id FROM deliveries
 WHERE status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed')
   AND updated_at <= :older_than
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = deliveries.task_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
