-- name: insert_wake
-- An alarm that asks for one resume.
INSERT INTO wakes
VALUES (:id, :task_id, :checkpoint_id, :reason, :attempt, :created_at, :digest, :status, :due_at, :updated_at,
        :own_reason)
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

-- name: fire_due_wakes
-- Fire wakes that are due, the first first; each fires once.
-- moves: wake pending -> fired
UPDATE wakes SET status = 'fired', updated_at = :now
 WHERE id IN (SELECT id FROM wakes WHERE status = 'pending' AND due_at <= :due_by ORDER BY due_at, id LIMIT :limit)
   AND status = 'pending'
RETURNING *;

-- name: due_wakes
-- The ids of wakes that are due, the first first.
SELECT id FROM wakes WHERE status = 'pending' AND due_at <= :due_by ORDER BY due_at, id LIMIT :limit;

-- name: fire_wake
-- Fire one wake, once.
-- moves: wake pending -> fired
UPDATE wakes SET status = 'fired', updated_at = :now
 WHERE id = :id AND status = 'pending'
RETURNING *;

-- name: next_wake
-- When the next wake is due, through the index wakes_due.
SELECT MIN(due_at) FROM wakes WHERE status = 'pending';

-- name: last_wake_written
-- When the last pending wake was written, through the index wakes_written.
SELECT MAX(updated_at) FROM wakes WHERE status = 'pending' AND attempt > 0;

-- name: reschedule_wakes_ahead
-- Pending wakes that were written after that moment, when the clock was ahead: the rest of their delay begins now.
UPDATE wakes SET due_at = :now + due_at - updated_at, updated_at = :now
 WHERE id IN (
         SELECT id FROM wakes
          WHERE status = 'pending' AND attempt > 0 AND updated_at > :moment
          ORDER BY updated_at, id LIMIT :limit
       )
   AND status = 'pending' AND updated_at > :moment
RETURNING id, task_id, due_at;

-- name: cancel_wakes_of_tasks
-- Their tasks have ended, so no wake of them fires.
-- moves: wake pending -> cancelled
UPDATE wakes SET status = 'cancelled', updated_at = :now
 WHERE task_id IN :ids[] AND status = 'pending'
RETURNING id, task_id;

-- name: pending_wakes
-- Wakes that have not fired, the first due first, a page at a time.
SELECT * FROM wakes
 WHERE status = 'pending' AND (due_at, id) > (:due_at, :after)
 ORDER BY due_at, id LIMIT :limit;

-- name: page_of_wakes
-- All wakes, newest first, a page at a time.
SELECT * FROM wakes WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_wakes_of_task
-- Those of one task, newest first.
SELECT * FROM wakes WHERE task_id = :task_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: find_wakes
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, task_id FROM wakes WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: lock_wake
-- One wake, locked until this transaction ends.
SELECT * FROM wakes WHERE id = :id;
