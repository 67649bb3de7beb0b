-- name: insert_delivery
-- An update that is owed.
INSERT INTO deliveries
VALUES (:id, :task_id, :idempotency_key, :origin, :target, :message, :created_at, :digest, :status, :attempts,
        :due_at, :failure, :claimed_by, :updated_at, :channel)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_delivery
-- The delivery that has this id, or else this key.
SELECT * FROM deliveries WHERE id = :id OR idempotency_key = :idempotency_key
 ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END LIMIT 1;

-- name: get_delivery
-- One delivery.
SELECT * FROM deliveries WHERE id = :id;

-- name: move_delivery
-- To another status, from any that the table allows.
UPDATE deliveries
   SET status = :to, attempts = attempts + CASE WHEN :to = 'attempting' THEN 1 ELSE 0 END, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

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
-- To another status, from any that the table allows, if nobody moved it since it was read.
UPDATE flows
   SET status = :to, revision = revision + 1, updated_at = :now,
       ended_at = CASE WHEN :to IN ('succeeded', 'failed', 'cancelled', 'lost') THEN :now ELSE ended_at END
 WHERE id = :id AND revision = :revision AND status IN :sources[]
RETURNING *;

-- name: insert_session
-- One conversation of one agent.
INSERT INTO sessions
VALUES (:id, :key, :agent, :parent_key, :created_at, :digest, :status, :waits_on, :origin, :task_id,
        :last_position, :queued, :ready_at, :updated_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_session
-- The session that has this id, or else this key.
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

-- name: insert_wake
-- An alarm that asks for one resume.
INSERT INTO wakes
VALUES (:id, :task_id, :checkpoint_id, :reason, :attempt, :created_at, :digest, :status, :due_at, :updated_at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_wake
-- One wake.
SELECT * FROM wakes WHERE id = :id;

-- name: move_wake
-- To another status, from any that the table allows.
UPDATE wakes SET status = :to, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: delete_deliveries_of_tasks
-- Retention.
DELETE FROM deliveries WHERE task_id IN :ids[];

-- name: delete_wakes_of_tasks
-- Retention.
DELETE FROM wakes WHERE task_id IN :ids[];
