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

-- name: messages_to_prune
-- Old messages that nobody has to answer, from a place on, oldest first, each with whether it may go.
-- It may when it stands far enough from the end of its transcript and from what is being answered there, or when
-- nobody has spoken in the session for as long; and when neither its task nor a firing that may be queued again
-- needs it.
SELECT messages.id, messages.updated_at,
       CASE WHEN (messages.position <= sessions.last_position - :kept
                  OR (sessions.updated_at <= :older_than AND sessions.status = 'idle' AND sessions.queued = 0))
             AND NOT EXISTS (SELECT 1 FROM messages AS waiting
                              WHERE waiting.session_key = messages.session_key AND waiting.status = 'queued'
                                AND waiting.position <= messages.position + :kept)
             AND NOT EXISTS (SELECT 1 FROM messages AS taken
                              WHERE taken.task_id = sessions.task_id AND taken.status = 'taken'
                                AND taken.position <= messages.position + :kept)
             AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = messages.task_id)
             AND NOT EXISTS (SELECT 1 FROM firings
                              WHERE firings.message_id = messages.id AND firings.status NOT IN ('done', 'missed'))
            THEN 1 ELSE 0 END
  FROM messages JOIN sessions ON sessions.key = messages.session_key
 WHERE messages.status IN ('answered', 'failed', 'noted')
   AND messages.updated_at <= :older_than
   AND (messages.updated_at, messages.id) > (:after_at, :after_id)
 ORDER BY messages.updated_at, messages.id LIMIT :limit;

-- name: delete_messages
-- Retention.
DELETE FROM messages WHERE id IN :ids[] AND status IN ('answered', 'failed', 'noted') RETURNING id;
