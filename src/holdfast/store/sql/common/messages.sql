-- name: insert_message
-- A new entry of a transcript; the same id, or the same id in its channel, changes nothing.
INSERT INTO messages
VALUES (:id, :session_key, :position, :role, :channel, :account_id, :channel_message_id, :origin, :body,
        :reply_to, :created_at, :digest, :status, :task_id, :updated_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_message
-- The message with this id, or with this id in its channel.
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
-- Assign it to a task that answers it.
-- moves: message queued -> taken
UPDATE messages SET status = 'taken', task_id = :task_id, updated_at = :now
 WHERE id = :id AND status = 'queued'
RETURNING *;

-- name: next_message
-- The first queued message of a session.
SELECT * FROM messages WHERE session_key = :session_key AND status = 'queued' ORDER BY position LIMIT 1;

-- name: message_of_task
-- The message that a task must answer and has not answered yet.
SELECT * FROM messages WHERE task_id = :task_id AND status = 'taken';

-- name: messages_after
-- The transcript after a position, oldest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position > :after
 ORDER BY position LIMIT :limit;

-- name: messages_before
-- The transcript before a position, newest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position < :before
 ORDER BY position DESC LIMIT :limit;

-- name: messages_heard
-- The transcript up to a position without queued messages, newest first.
SELECT * FROM messages
 WHERE session_key = :session_key AND position <= :until AND status <> 'queued'
 ORDER BY position DESC LIMIT :limit;

-- name: messages_to_prune
-- A page of old messages that need no answer, oldest first, each with whether it may be deleted.
-- It may if it is far enough from the end of its transcript and from the messages being answered there, or if the
-- session has been inactive for as long; and if neither its task nor a firing that may be queued again needs it.
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
