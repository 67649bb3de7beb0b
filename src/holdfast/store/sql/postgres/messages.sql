-- name: messages_to_prune
-- A page of old messages that need no answer, oldest first, each with whether it may be deleted.
-- It may if it is far enough from the end of its transcript and from the messages being answered there, or if the
-- session has been inactive for as long; and if neither its task nor a firing that may be queued again needs it.
-- Differs: they and their sessions are locked, so that no message is added meanwhile; locked ones are skipped.
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
 ORDER BY messages.updated_at, messages.id LIMIT :limit
   FOR UPDATE OF messages, sessions SKIP LOCKED;
