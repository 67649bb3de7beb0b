-- name: hold_session
-- The session of a key; keeps its messages in order until the transaction ends.
-- Differs: the row is locked, so that two posters cannot be given the same place.
SELECT * FROM sessions WHERE key = :key FOR NO KEY UPDATE;

-- name: sessions_to_prune
-- Sessions in which nobody has spoken for long, from a place on, each with whether it may go.
-- It may when it is idle and nothing of its transcript is left.
-- Differs: they are locked, so that nobody speaks there meanwhile; busy ones are skipped.
SELECT id, updated_at,
       CASE WHEN status = 'idle' AND queued = 0
             AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_key = sessions.key)
            THEN 1 ELSE 0 END
  FROM sessions
 WHERE updated_at <= :older_than AND (updated_at, id) > (:after_at, :after_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;
