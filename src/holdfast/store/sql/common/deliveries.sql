-- name: insert_delivery
-- A new delivery.
INSERT INTO deliveries
VALUES (:id, :task_id, :idempotency_key, :origin, :target, :message, :created_at, :digest, :status, :attempts,
        :due_at, :failure, :claimed_by, :updated_at, :channel)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_delivery
-- The delivery with this id or this key.
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

-- name: delete_deliveries_of_tasks
-- Retention.
DELETE FROM deliveries WHERE task_id IN :ids[];

-- name: due_deliveries
-- Deliveries that may be sent now through a channel: no older one to the same target is open.
-- A page of due ones is selected first, so that a target with many deliveries does not slow down every query.
SELECT * FROM (
         SELECT * FROM deliveries
          WHERE channel = :channel AND status = 'pending' AND due_at <= :now
          ORDER BY due_at, id LIMIT :page
       ) AS first_due
 WHERE NOT EXISTS (
         SELECT 1 FROM deliveries AS older
          WHERE older.channel = first_due.channel AND older.target = first_due.target
            AND older.status IN ('pending', 'attempting')
            AND (older.created_at, older.id) < (first_due.created_at, first_due.id)
       )
 ORDER BY due_at, id;

-- name: oldest_owed
-- The oldest open delivery of each target, for a page of targets; it skips from target to target in the index.
WITH RECURSIVE owed (target, number) AS (
  SELECT MIN(target), 1 FROM deliveries
   WHERE channel = :channel AND status IN ('pending', 'attempting') AND target > :after
  UNION ALL
  SELECT (SELECT MIN(deliveries.target) FROM deliveries
           WHERE deliveries.channel = :channel AND deliveries.status IN ('pending', 'attempting')
             AND deliveries.target > owed.target),
         owed.number + 1
    FROM owed WHERE owed.target IS NOT NULL AND owed.number < CAST(:page AS bigint)
)
SELECT deliveries.* FROM owed JOIN deliveries
    ON deliveries.id = (SELECT oldest.id FROM deliveries AS oldest
                         WHERE oldest.channel = :channel AND oldest.target = owed.target
                           AND oldest.status IN ('pending', 'attempting')
                         ORDER BY oldest.created_at, oldest.id LIMIT 1);

-- name: waiting_channels
-- The channels with deliveries to send, now or later; it skips from name to name in the index.
WITH RECURSIVE waiting (channel, number) AS (
  SELECT MIN(channel), 1 FROM deliveries WHERE status = 'pending'
  UNION ALL
  SELECT (SELECT MIN(deliveries.channel) FROM deliveries
           WHERE deliveries.status = 'pending' AND deliveries.channel > waiting.channel),
         waiting.number + 1
    FROM waiting WHERE waiting.channel IS NOT NULL AND waiting.number < CAST(:limit AS bigint)
)
SELECT channel FROM waiting WHERE channel IS NOT NULL;

-- name: attempt_delivery
-- One boot claims it for sending.
-- moves: delivery pending -> attempting
UPDATE deliveries
   SET status = 'attempting', attempts = attempts + 1, claimed_by = :boot_id, due_at = :lease_until,
       updated_at = :now
 WHERE id = :id AND status = 'pending'
RETURNING *;

-- name: lapsed_deliveries
-- Attempts without an outcome whose boot has ended or took too long.
-- (|| '' keeps the planner to the index of attempts, which has the right order.)
SELECT * FROM deliveries
 WHERE status = 'attempting' AND channel || '' IN :channels[]
   AND (due_at <= :now
        OR EXISTS (SELECT 1 FROM boots WHERE boots.id = deliveries.claimed_by AND boots.ended_at IS NOT NULL))
 ORDER BY due_at, id LIMIT :limit;

-- name: reclaim_delivery
-- Another boot claims a lapsed attempt to find out how it ended; the number of attempts is the fence.
UPDATE deliveries
   SET attempts = attempts + 1, claimed_by = :boot_id, due_at = :lease_until, updated_at = :now
 WHERE id = :id AND status = 'attempting' AND attempts = :attempts
RETURNING *;

-- name: settle_delivery
-- Record how an attempt ended, unless another one has begun since.
-- moves: delivery attempting -> pending|delivered|session_queued|failed|parent_missing
UPDATE deliveries
   SET status = :to, failure = :failure, due_at = :due_at, claimed_by = NULL, updated_at = :now
 WHERE id = :id AND status = 'attempting' AND attempts = :attempts
RETURNING *;

-- name: settle_queued_delivery
-- Record what became of an update in the queue of its session.
-- moves: delivery session_queued -> delivered|failed|dismissed
UPDATE deliveries
   SET status = :to, failure = :failure, updated_at = :now
 WHERE id = :id AND status = 'session_queued'
RETURNING *;

-- name: failed_deliveries
-- Failed deliveries, oldest first.
SELECT * FROM deliveries WHERE status = 'failed' AND id > :after ORDER BY id LIMIT :limit;

-- name: owed_deliveries
-- Deliveries still to be sent, oldest first.
SELECT * FROM deliveries WHERE status IN ('pending', 'attempting') AND id > :after ORDER BY id LIMIT :limit;

-- name: find_deliveries
-- Ids that begin with a prefix.
SELECT id, task_id FROM deliveries WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: retry_delivery
-- An operator retries it. Its attempts keep counting, because they are the fence against an earlier sender.
-- moves: delivery failed -> pending
UPDATE deliveries
   SET status = 'pending', due_at = :now, claimed_by = NULL, updated_at = :now
 WHERE id = :id AND status = 'failed'
RETURNING *;

-- name: confirm_delivery
-- A person found out that a delivery of unknown outcome had arrived.
-- moves: delivery failed -> delivered
UPDATE deliveries
   SET status = 'delivered', claimed_by = NULL, updated_at = :now
 WHERE id = :id AND status = 'failed'
RETURNING *;

-- name: deliveries_of_task
-- All deliveries of a task.
SELECT * FROM deliveries WHERE task_id = :task_id ORDER BY id;

-- name: last_deliveries_of_tasks
-- The status of the newest delivery of each of these tasks.
SELECT deliveries.task_id, deliveries.status FROM deliveries
 WHERE deliveries.task_id IN :ids[]
   AND deliveries.id = (SELECT MAX(other.id) FROM deliveries AS other
                         WHERE other.task_id = deliveries.task_id)
 ORDER BY deliveries.task_id;

-- name: deliveries_to_prune
-- Old settled deliveries whose task is gone, oldest first; others are deleted with their task.
SELECT id FROM deliveries
 WHERE status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed')
   AND updated_at <= :older_than
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = deliveries.task_id)
 ORDER BY updated_at, id LIMIT :limit;

-- name: delete_deliveries
-- Retention.
DELETE FROM deliveries
 WHERE id IN :ids[] AND status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed')
RETURNING id;
