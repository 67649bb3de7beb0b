-- name: insert_kept_steps
-- What a turn keeps of its steps; the first document stays.
INSERT INTO kept_steps VALUES (:task_id, :loop, :seq, :body, :digest)
ON CONFLICT (task_id, loop, seq) DO NOTHING;

-- name: get_kept_steps
-- What one turn has kept of its steps.
SELECT * FROM kept_steps WHERE task_id = :task_id AND loop = :loop AND seq = :seq;

-- name: delete_kept_steps_of_tasks
-- Retention.
DELETE FROM kept_steps WHERE task_id IN :ids[];
