-- name: hold_session
-- The session of a key, locked until the transaction ends, so that its messages have one order.
-- Differs: the row is locked, so that two messages cannot get the same position.
SELECT * FROM sessions WHERE key = :key FOR NO KEY UPDATE;

-- name: sessions_to_prune
-- A page of inactive sessions, each with whether it may be deleted.
-- It may if it is idle and its transcript is empty.
-- Differs: they are locked, so that no message is added meanwhile; locked ones are skipped.
SELECT id, updated_at,
       CASE WHEN status = 'idle' AND queued = 0
             AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_key = sessions.key)
            THEN 1 ELSE 0 END
  FROM sessions
 WHERE updated_at <= :older_than AND (updated_at, id) > (:after_at, :after_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
