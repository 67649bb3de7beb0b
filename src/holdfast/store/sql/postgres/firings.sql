-- name: firings_to_prune
-- Old firings that have ended, oldest first.
-- Never the last of a schedule: the next ones are computed from it. That of a schedule that is gone may go.
-- Differs: they are locked, and rows that are locked already are skipped, so that two processes cannot deadlock.
SELECT id FROM firings
 WHERE status IN ('done', 'failed', 'missed') AND updated_at <= :older_than
   AND (EXISTS (SELECT 1 FROM firings AS next
                 WHERE next.schedule = firings.schedule AND next.occurrence_at > firings.occurrence_at)
        OR (schedule_made_at IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM schedules
                             WHERE schedules.name = firings.schedule
                               AND schedules.created_at = firings.schedule_made_at)))
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = firings.task_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
