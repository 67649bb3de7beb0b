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

-- name: lock_wake
-- One wake, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM wakes WHERE id = :id FOR UPDATE;
