-- name: insert_firing
-- One occurrence of a schedule; a second insert finds the first.
INSERT INTO firings
VALUES (:id, :schedule, :occurrence_at, :session_key, :created_at, :digest, :status, :message_id, :task_id,
        :is_retry, :updated_at)
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
   SET status = :to, updated_at = :now, is_retry = CASE WHEN :to = 'requeued' THEN 1 ELSE is_retry END
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
 WHERE schedule = :schedule AND occurrence_at <= :until AND (status <> 'missed' OR created_at <= :missed_by)
 ORDER BY occurrence_at DESC LIMIT 1;

-- name: page_of_firings
-- The occurrences of a schedule, latest first.
SELECT * FROM firings
 WHERE schedule = :schedule AND occurrence_at < :before
 ORDER BY occurrence_at DESC LIMIT :limit;

-- name: open_firings
-- Firings that are due, running or queued again, oldest first.
SELECT * FROM firings WHERE status IN ('due', 'running', 'requeued') ORDER BY occurrence_at, id LIMIT :limit;

-- name: firings_to_prune
-- Old firings that have ended, oldest first.
-- Never the last of a schedule: the next ones are computed from it.
SELECT id FROM firings
 WHERE status IN ('done', 'failed', 'missed') AND updated_at <= :older_than
   AND EXISTS (SELECT 1 FROM firings AS next
                WHERE next.schedule = firings.schedule AND next.occurrence_at > firings.occurrence_at)
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = firings.task_id)
 ORDER BY updated_at, id LIMIT :limit;

-- name: delete_firings
-- Retention.
DELETE FROM firings WHERE id IN :ids[] AND status IN ('done', 'failed', 'missed') RETURNING id;
