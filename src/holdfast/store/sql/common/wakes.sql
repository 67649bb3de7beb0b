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

-- name: delete_wakes_of_tasks
-- Retention.
DELETE FROM wakes WHERE task_id IN :ids[];
