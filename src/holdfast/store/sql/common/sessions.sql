-- name: insert_session
-- One conversation of one agent.
INSERT INTO sessions
VALUES (:id, :key, :agent, :parent_key, :created_at, :digest, :status, :waits_on, :origin, :task_id,
        :last_position, :queued, :ready_at, :updated_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_session
-- The session with this id or this key.
SELECT * FROM sessions WHERE id = :id OR key = :key
 ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END LIMIT 1;

-- name: get_session
-- One session.
SELECT * FROM sessions WHERE id = :id;

-- name: move_session
-- To another status, from any that the table allows.
UPDATE sessions SET status = :to, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: session_of_key
-- The session with this key.
SELECT * FROM sessions WHERE key = :key;

-- name: hold_session
-- The session of a key, locked until the transaction ends, so that its messages have one order.
SELECT * FROM sessions WHERE key = :key;

-- name: append_to_session
-- Reserve the next position in the transcript; the message may be queued.
UPDATE sessions
   SET last_position = last_position + 1, queued = queued + :queued, origin = COALESCE(:origin, origin),
       ready_at = CASE WHEN task_id IS NULL AND queued + :queued > 0 THEN COALESCE(ready_at, :now) END,
       updated_at = :now
 WHERE key = :key
RETURNING *;

-- name: take_session
-- Assign the session to a task that answers its first queued message.
-- moves: session idle|interrupted|waiting -> processing
UPDATE sessions
   SET status = 'processing', task_id = :task_id, waits_on = NULL, queued = queued - 1, ready_at = NULL,
       updated_at = :now
 WHERE id = :id AND task_id IS NULL AND queued > 0 AND status IN ('idle', 'interrupted', 'waiting')
RETURNING *;

-- name: free_session
-- The task that answered has ended; the next message may be taken.
-- moves: session processing|draining|interrupted|waiting -> idle
UPDATE sessions
   SET status = 'idle', task_id = NULL, waits_on = NULL, updated_at = :now,
       ready_at = CASE WHEN queued > 0 THEN CAST(:now AS BIGINT) END
 WHERE id = :id AND task_id = :task_id AND status IN ('processing', 'draining', 'interrupted', 'waiting')
RETURNING *;

-- name: drop_queued
-- A queued message will not be answered, so it is no longer counted.
UPDATE sessions
   SET queued = queued - 1, ready_at = CASE WHEN queued > 1 THEN ready_at END, updated_at = :now
 WHERE key = :key AND queued > 0
RETURNING *;

-- name: ready_sessions
-- Sessions of these agents with a message that can be answered now, longest waiting first.
-- (|| '' keeps the planner to the index of waiting sessions.)
SELECT * FROM sessions
 WHERE ready_at IS NOT NULL AND agent || '' IN :agents[]
   AND status || '' IN ('idle', 'interrupted', 'waiting')
 ORDER BY ready_at, id LIMIT :limit;

-- name: agents_of_ready_sessions
-- The agents of waiting sessions, longest waiting first.
SELECT agent FROM sessions WHERE ready_at IS NOT NULL ORDER BY ready_at, id LIMIT :limit;

-- name: busy_sessions
-- Sessions that a task is answering.
SELECT * FROM sessions WHERE task_id IS NOT NULL AND task_id > :after ORDER BY task_id LIMIT :limit;

-- name: ended_sessions
-- Sessions whose task has ended or was deleted.
SELECT sessions.* FROM sessions LEFT JOIN tasks ON tasks.id = sessions.task_id
 WHERE sessions.task_id IS NOT NULL AND (tasks.id IS NULL OR tasks.ended_at IS NOT NULL)
 ORDER BY sessions.task_id LIMIT :limit;

-- name: page_of_sessions
-- Most recently active first.
SELECT * FROM sessions
 WHERE (updated_at, id) < (:before_at, :before_id) AND updated_at >= :since
 ORDER BY updated_at DESC, id DESC LIMIT :limit;

-- name: page_of_sessions_of_agent
-- Sessions of one agent, most recently active first.
SELECT * FROM sessions
 WHERE agent = :agent AND (updated_at, id) < (:before_at, :before_id) AND updated_at >= :since
 ORDER BY updated_at DESC, id DESC LIMIT :limit;

-- name: sessions_to_prune
-- A page of inactive sessions, each with whether it may be deleted.
-- It may if it is idle and its transcript is empty.
SELECT id, updated_at,
       CASE WHEN status = 'idle' AND queued = 0
             AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_key = sessions.key)
            THEN 1 ELSE 0 END
  FROM sessions
 WHERE updated_at <= :older_than AND (updated_at, id) > (:after_at, :after_id)
 ORDER BY updated_at, id LIMIT :limit;

-- name: delete_sessions
-- Retention.
DELETE FROM sessions WHERE id IN :ids[] AND status = 'idle' AND queued = 0 RETURNING id;
