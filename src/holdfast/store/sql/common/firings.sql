-- name: insert_firing
-- One occurrence of a schedule; a second insert finds the first.
INSERT INTO firings
VALUES (:id, :schedule, :occurrence_at, :session_key, :created_at, :digest, :status, :message_id, :task_id,
        :is_retry, :updated_at, :why, :cause, :schedule_made_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_firing
-- The firing with this id or this occurrence.
SELECT * FROM firings WHERE id = :id OR (schedule = :schedule AND occurrence_at = :occurrence_at)
 ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END LIMIT 1;

-- name: get_firing
-- One firing.
SELECT * FROM firings WHERE id = :id;

-- name: find_firing_of_message
-- The firing that posted this message.
SELECT * FROM firings WHERE message_id = :message_id;

-- name: move_firing
-- To another status, from any that the table allows.
UPDATE firings
   SET status = :to, updated_at = :now, why = COALESCE(:why, why),
       is_retry = CASE WHEN :to = 'requeued' THEN 1 ELSE is_retry END
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: repost_firing
-- Its first message was not answered; it has posted another one.
UPDATE firings SET message_id = :message_id, task_id = NULL, updated_at = :now
 WHERE id = :id AND status = 'requeued'
RETURNING *;

-- name: move_firing_of_message
-- Move the firing that posted this message along with it.
UPDATE firings
   SET status = :to, task_id = :task_id, updated_at = :now,
       is_retry = CASE WHEN :to = 'requeued' THEN 1 ELSE is_retry END
 WHERE message_id = :message_id AND status IN :sources[]
RETURNING *;

-- name: last_firing
-- The latest known occurrence of a schedule, up to a moment.
-- Leaves out one that was recorded as missed by a clock that was ahead: it may still fire.
SELECT * FROM firings
 WHERE schedule = :schedule AND (schedule_made_at = :made_at OR :made_at = -1)
   AND cause = 'planned' AND occurrence_at <= :until AND (status <> 'missed' OR created_at <= :missed_by)
 ORDER BY occurrence_at DESC LIMIT 1;

-- name: page_of_firings
-- Those of a schedule in a span of time, latest first; also those of earlier schedules of its name, or not.
SELECT * FROM firings
 WHERE schedule = :schedule AND (schedule_made_at = :made_at OR :made_at = -1)
   AND occurrence_at >= :since AND occurrence_at < :before
 ORDER BY occurrence_at DESC LIMIT :limit;

-- name: newest_firing
-- The newest occurrence of a schedule that is not in the future, whatever asked for it.
SELECT * FROM firings
 WHERE schedule = :schedule AND schedule_made_at = :made_at AND occurrence_at <= :until
 ORDER BY occurrence_at DESC LIMIT 1;

-- name: adopt_firings
-- What releases before schema 10 have fired belongs to the schedule of the settings.
UPDATE firings SET schedule_made_at = :made_at WHERE schedule = :schedule AND schedule_made_at IS NULL;

-- name: page_of_all_firings
-- The firings of all schedules, newest first.
SELECT * FROM firings WHERE (created_at, occurrence_at, id) < (:created_at, :occurrence_at, :id)
 ORDER BY created_at DESC, occurrence_at DESC, id DESC LIMIT :limit;

-- name: open_firings_of_schedule
-- Firings of one schedule that have not ended, oldest first.
SELECT * FROM firings
 WHERE schedule = :schedule AND schedule_made_at = :made_at AND status IN ('due', 'running', 'requeued')
 ORDER BY occurrence_at, id LIMIT :limit;

-- name: startable_firings
-- Firings that have waited and may start, oldest first, a page at a time.
-- Of each schedule only the first, if none before it is open: a stuck schedule fills no page. Of a removed
-- schedule, all: they are given up. Of a paused one, only what was requested, which waits for no planned one.
SELECT waiting.* FROM firings AS waiting
  LEFT JOIN schedules ON schedules.name = waiting.schedule AND schedules.created_at = waiting.schedule_made_at
 WHERE waiting.status = 'due' AND waiting.message_id IS NULL AND waiting.task_id IS NULL
   AND (waiting.occurrence_at, waiting.id) > (:after_at, :after)
   AND (schedules.name IS NULL
        OR ((schedules.is_paused = 0 OR waiting.cause = 'requested')
            AND NOT EXISTS (SELECT 1 FROM firings AS other
                             WHERE other.schedule = waiting.schedule
                               AND other.schedule_made_at = waiting.schedule_made_at
                               AND other.status IN ('due', 'running', 'requeued') AND other.id <> waiting.id
                               AND (other.task_id IS NOT NULL OR other.message_id IS NOT NULL
                                    OR (other.occurrence_at < waiting.occurrence_at
                                        AND (schedules.is_paused = 0 OR other.cause = 'requested'))))))
 ORDER BY waiting.occurrence_at, waiting.id LIMIT :limit;

-- name: firings_to_settle
-- Open firings whose task has ended.
SELECT firings.* FROM firings JOIN tasks ON tasks.id = firings.task_id
 WHERE firings.status IN ('due', 'running', 'requeued') AND firings.message_id IS NULL
   AND firings.task_id IS NOT NULL AND tasks.ended_at IS NOT NULL
 ORDER BY firings.task_id, firings.id LIMIT :limit;

-- name: count_firings_of_tasks
-- Whether some firing has a task that may still run.
SELECT 1 FROM firings
 WHERE status IN ('due', 'running', 'requeued') AND message_id IS NULL AND task_id IS NOT NULL LIMIT 1;

-- name: start_firing
-- A firing that waited has its task now.
-- moves: firing due -> running
UPDATE firings SET status = 'running', task_id = :task_id, updated_at = :now
 WHERE id = :id AND status = 'due' AND task_id IS NULL AND message_id IS NULL
RETURNING *;

-- name: open_firings
-- Firings that are due, running or queued again, oldest first.
SELECT * FROM firings WHERE status IN ('due', 'running', 'requeued') ORDER BY occurrence_at, id LIMIT :limit;

-- name: firings_to_prune
-- Old firings that have ended, oldest first.
-- Never the last of a schedule: the next ones are computed from it. That of a schedule that is gone may go.
SELECT id FROM firings
 WHERE status IN ('done', 'failed', 'missed') AND updated_at <= :older_than
   AND (EXISTS (SELECT 1 FROM firings AS next
                 WHERE next.schedule = firings.schedule AND next.occurrence_at > firings.occurrence_at)
        OR (schedule_made_at IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM schedules
                             WHERE schedules.name = firings.schedule
                               AND schedules.created_at = firings.schedule_made_at)))
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = firings.task_id)
 ORDER BY updated_at, id LIMIT :limit;

-- name: delete_firings
-- Retention.
DELETE FROM firings WHERE id IN :ids[] AND status IN ('done', 'failed', 'missed') RETURNING id;
