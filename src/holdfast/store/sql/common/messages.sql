-- name: insert_message
-- An entry of a transcript; what has the same id, or the same name in its channel, was posted before.
INSERT INTO messages
VALUES (:id, :session_key, :position, :role, :channel, :account_id, :channel_message_id, :origin, :body,
        :reply_to, :created_at, :digest, :status, :task_id, :updated_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_message
-- The message that has this id, or else this name in its channel.
SELECT * FROM messages
 WHERE id = :id
    OR (channel = :channel AND account_id = :account_id AND channel_message_id = :channel_message_id)
 ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END LIMIT 1;

-- name: get_message
-- One message.
SELECT * FROM messages WHERE id = :id;

-- name: move_message
-- To another status, from any that the table allows.
UPDATE messages SET status = :to, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: take_message
-- A task answers it from now on.
-- moves: message queued -> taken
UPDATE messages SET status = 'taken', task_id = :task_id, updated_at = :now
 WHERE id = :id AND status = 'queued'
RETURNING *;

-- name: next_message
-- The first of a session that waits for its turn.
SELECT * FROM messages WHERE session_key = :session_key AND status = 'queued' ORDER BY position LIMIT 1;

-- name: message_of_task
-- What a task was to answer, and has not answered yet.
SELECT * FROM messages WHERE task_id = :task_id AND status = 'taken';

-- name: messages_after
-- The transcript from a place on, oldest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position > :after
 ORDER BY position LIMIT :limit;

-- name: messages_before
-- The transcript up to a place, newest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position < :before
 ORDER BY position DESC LIMIT :limit;

-- name: messages_heard
-- The transcript up to a place without what still waits for its turn, newest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position <= :until AND status <> 'queued'
 ORDER BY position DESC LIMIT :limit;
