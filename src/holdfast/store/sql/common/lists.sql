-- name: insert_delta
-- Items appended to a durable list in one write; the first delta at a position stays.
INSERT INTO list_deltas
VALUES (:task_id, :name, :start, :count, :items, :chain, :run_id, :written_at, :digest)
ON CONFLICT (task_id, list, start) DO NOTHING
RETURNING start;

-- name: get_delta
-- The delta at one position.
SELECT * FROM list_deltas WHERE task_id = :task_id AND list = :name AND start = :start;

-- name: deltas_of_tasks
-- The durable lists of several tasks, in order.
SELECT * FROM list_deltas WHERE task_id IN :ids[] ORDER BY task_id, list, start;

-- name: list_lengths_of_task
-- The length of each durable list of a task.
SELECT list, MAX(start + count) FROM list_deltas WHERE task_id = :task_id GROUP BY list ORDER BY list;

-- name: save_value
-- The current durable value.
INSERT INTO durable_values VALUES (:task_id, :name, :value, :written_at, :digest)
ON CONFLICT (task_id, name) DO UPDATE
   SET value = excluded.value, written_at = excluded.written_at, digest = excluded.digest;

-- name: values_of_tasks
-- The durable values of several tasks.
SELECT * FROM durable_values WHERE task_id IN :ids[] ORDER BY task_id, name;

-- name: save_ops
-- The operations that a scope applied.
INSERT INTO scope_ops VALUES (:task_id, :scope, :ops, :digest)
ON CONFLICT (task_id, scope) DO UPDATE SET ops = excluded.ops, digest = excluded.digest;

-- name: ops_of_tasks
-- The operations that the open scopes of several tasks applied.
SELECT * FROM scope_ops WHERE task_id IN :ids[] ORDER BY task_id, scope;

-- name: delete_list_deltas_of_tasks
-- Retention.
DELETE FROM list_deltas WHERE task_id IN :ids[];

-- name: delete_durable_values_of_tasks
-- Retention.
DELETE FROM durable_values WHERE task_id IN :ids[];

-- name: delete_scope_ops_of_tasks
-- Retention.
DELETE FROM scope_ops WHERE task_id IN :ids[];
