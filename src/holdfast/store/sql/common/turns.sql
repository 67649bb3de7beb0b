-- name: insert_turn
-- A finished turn; the first one stays.
INSERT INTO turns
VALUES (:task_id, :loop, :seq, :turn, :run_id, :steps, :step_count, :last_step, :began_at, :ended_at,
        :marks, :digest)
ON CONFLICT (task_id, loop, seq) DO NOTHING
RETURNING seq;

-- name: get_turn
-- One finished turn by its number.
SELECT * FROM turns WHERE task_id = :task_id AND loop = :loop AND seq = :seq;

-- name: find_turn
-- One finished turn of a loop by its name, such as the id of a plan's item.
SELECT * FROM turns WHERE task_id = :task_id AND loop = :loop AND turn = :turn LIMIT 1;

-- name: turns_of_task
-- The finished turns of all loops of a task.
SELECT * FROM turns
 WHERE task_id = :task_id AND seq > :after
 ORDER BY loop, seq LIMIT :limit;

-- name: page_of_turns
-- The finished turns of a task after one of them, in the order of their loops and numbers, for display.
SELECT * FROM turns
 WHERE task_id = :task_id AND (loop, seq) > (:loop, :after)
 ORDER BY loop, seq LIMIT :limit;

-- name: turns_of_loop
-- The finished turns of one loop.
SELECT * FROM turns
 WHERE task_id = :task_id AND loop = :loop AND seq > :after
 ORDER BY seq LIMIT :limit;

-- name: save_loop
-- The position of a loop.
INSERT INTO loops VALUES (:task_id, :loop, :turns_done, :is_over, :now, :digest)
ON CONFLICT (task_id, loop) DO UPDATE
   SET turns_done = excluded.turns_done, is_over = excluded.is_over, updated_at = excluded.updated_at,
       digest = excluded.digest;

-- name: loops_of_tasks
-- The positions of the loops of several tasks.
SELECT * FROM loops WHERE task_id IN :ids[] ORDER BY task_id, loop;

-- name: delete_steps_of_scope
-- The steps of a scope and of all scopes inside it: one range of the key, without scopes with a similar name.
DELETE FROM steps
 WHERE task_id = :task_id AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low);

-- name: delete_scope_ops_of_scope
-- The operations of a scope and of all scopes inside it.
DELETE FROM scope_ops
 WHERE task_id = :task_id AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low);

-- name: turns_below
-- The turns of the loops inside a scope after one of them, for display and forks.
SELECT * FROM turns
 WHERE task_id = :task_id AND loop >= :low AND loop < :high AND (loop, seq) > (:loop, :after)
 ORDER BY loop, seq LIMIT :limit;

-- name: delete_loops_below
-- The loops inside a scope.
DELETE FROM loops WHERE task_id = :task_id AND loop >= :low AND loop < :high;

-- name: delete_loops_of_tasks
-- Retention.
DELETE FROM loops WHERE task_id IN :ids[];

-- name: delete_turns_of_tasks
-- Retention.
DELETE FROM turns WHERE task_id IN :ids[];
