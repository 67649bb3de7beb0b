-- name: fire_due_wakes
-- Fire wakes that are due, the first first; each fires once.
-- Differs: wakes that another process is firing are skipped; the guard stands on the outer WHERE, too.
-- moves: wake pending -> fired
WITH due AS MATERIALIZED (
       SELECT id FROM wakes
        WHERE status = 'pending' AND due_at <= :due_by
        ORDER BY due_at, id LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE wakes SET status = 'fired', updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM due)) AND status = 'pending'
RETURNING *;

-- name: reschedule_wakes_ahead
-- Pending wakes that were written after that moment, when the clock was ahead: the rest of their delay begins now.
-- Differs: the rows are locked in the order of their ids, so that two processes cannot deadlock.
WITH ahead AS MATERIALIZED (
       SELECT id FROM wakes
        WHERE status = 'pending' AND attempt > 0 AND updated_at > :moment
        ORDER BY id LIMIT :limit
          FOR NO KEY UPDATE
     )
UPDATE wakes SET due_at = :now + due_at - updated_at, updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM ahead)) AND status = 'pending' AND updated_at > :moment
RETURNING id, task_id, due_at;

-- name: lock_wake
-- One wake, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM wakes WHERE id = :id FOR UPDATE;
