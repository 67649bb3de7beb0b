-- name: firings_to_prune
-- Old firings that have come to their end, oldest first.
-- Never the last of a schedule, from which the next ones are counted.
-- Differs: they are locked, so that two of us do not wait for each other; busy ones are skipped.
SELECT id FROM firings
 WHERE status IN ('done', 'failed', 'missed') AND updated_at <= :older_than
   AND EXISTS (SELECT 1 FROM firings AS next
                WHERE next.schedule = firings.schedule AND next.occurrence_at > firings.occurrence_at)
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = firings.task_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
