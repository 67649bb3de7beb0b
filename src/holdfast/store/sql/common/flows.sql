-- name: insert_flow
-- State above several tasks.
INSERT INTO flows
VALUES (:id, :owner, :mode, :goal, :created_at, :digest, :status, :revision, :current_step, :contents,
        :waits_on, :blocked_by_task_id, :cancel_requested_at, :updated_at, :ended_at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_flow
-- One flow.
SELECT * FROM flows WHERE id = :id;

-- name: move_flow
-- To another status, from any that the table allows, if it has not changed since it was read.
UPDATE flows
   SET status = :to, revision = revision + 1, updated_at = :now,
       ended_at = CASE WHEN :to IN ('succeeded', 'failed', 'cancelled', 'lost') THEN :now ELSE ended_at END
 WHERE id = :id AND revision = :revision AND status IN :sources[]
RETURNING *;
