-- name: due_deliveries
-- What may be sent now: nothing older is still owed to the same target.
SELECT * FROM deliveries
 WHERE status = 'pending' AND due_at <= :now
   AND NOT EXISTS (
         SELECT 1 FROM deliveries AS older
          WHERE older.target = deliveries.target AND older.status IN ('pending', 'attempting')
            AND (older.created_at, older.id) < (deliveries.created_at, deliveries.id)
       )
 ORDER BY due_at, id LIMIT :limit;

-- name: next_delivery_at
-- When the next one is due.
SELECT due_at FROM deliveries WHERE status = 'pending' ORDER BY due_at, id LIMIT 1;

-- name: attempt_delivery
-- One boot attempts it; whoever comes second does not.
-- moves: delivery pending -> attempting
UPDATE deliveries
   SET status = 'attempting', attempts = attempts + 1, claimed_by = :boot_id, due_at = :lease_until,
       updated_at = :now
 WHERE id = :id AND status = 'pending'
RETURNING *;

-- name: lapsed_deliveries
-- Attempts of which nobody will tell how they ended: their boot has ended, or took too long.
SELECT * FROM deliveries
 WHERE status = 'attempting'
   AND (due_at <= :now
        OR NOT EXISTS (SELECT 1 FROM boots WHERE boots.id = deliveries.claimed_by AND boots.ended_at IS NULL))
 ORDER BY due_at, id LIMIT :limit;

-- name: reclaim_delivery
-- Another boot finds out how an attempt ended; the number of attempts is its fence.
UPDATE deliveries
   SET attempts = attempts + 1, claimed_by = :boot_id, due_at = :lease_until, updated_at = :now
 WHERE id = :id AND status = 'attempting' AND attempts = :attempts
RETURNING *;

-- name: settle_delivery
-- How an attempt ended, unless another one has begun since.
-- moves: delivery attempting -> pending|delivered|session_queued|failed|parent_missing
UPDATE deliveries
   SET status = :to, failure = :failure, due_at = :due_at, claimed_by = NULL, updated_at = :now
 WHERE id = :id AND status = 'attempting' AND attempts = :attempts
RETURNING *;

-- name: deliveries_of_task
-- What is or was owed because of a task.
SELECT * FROM deliveries WHERE task_id = :task_id ORDER BY id;
