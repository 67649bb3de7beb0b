-- name: insert_checkpoint
-- A new checkpoint; the same id again changes nothing, so that a write may be run twice.
INSERT INTO run_checkpoints
VALUES (:id, :task_id, :run_id, :kind, :reason, :schema_version, :document, :retry_of, :created_at, :digest,
        :status, :priority, :token, :claimed_by, :lease_until, :attempts, :resumed_run_id, :diagnostic, :updated_at,
        :wake_id)
ON CONFLICT (id) DO NOTHING;

-- name: get_checkpoint
-- One checkpoint by its whole id.
SELECT * FROM run_checkpoints WHERE id = :id;

-- name: lock_checkpoint
-- One checkpoint, locked until this transaction ends.
SELECT * FROM run_checkpoints WHERE id = :id;

-- name: find_checkpoints
-- Ids that begin with a prefix.
SELECT id, task_id FROM run_checkpoints WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: page_of_checkpoints
-- Newest first, a page at a time.
SELECT * FROM run_checkpoints WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_checkpoints_in_status
-- Those in one status, newest first.
SELECT * FROM run_checkpoints WHERE status = :status AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_checkpoints_of_task
-- Those of one task, newest first.
SELECT * FROM run_checkpoints WHERE task_id = :task_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_checkpoints_of_task_in_status
-- Those of one task in one status, newest first; COALESCE keeps the planner to the index by task.
SELECT * FROM run_checkpoints
 WHERE task_id = :task_id AND COALESCE(status, '') = :status AND id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: open_checkpoint_of_run
-- The checkpoint that pauses a run now, if there is one.
SELECT * FROM run_checkpoints WHERE run_id = :run_id AND status IN ('paused_for_restart', 'resuming');

-- name: checkpoint_that_retries
-- The checkpoint that an operator's retry of this one wrote.
SELECT * FROM run_checkpoints WHERE retry_of = :id;

-- name: count_interruptions
-- How many runs of a task a restart or a crash has cut short; saved at their time limit does not count.
SELECT COUNT(DISTINCT run_id) FROM run_checkpoints WHERE task_id = :task_id AND kind IN ('restart', 'crash');

-- name: resumes_with_token
-- What a resumer holds already, if the answer to its claim was lost.
SELECT * FROM run_checkpoints
 WHERE claimed_by = :boot_id AND token = :token AND status = 'resuming'
 ORDER BY priority, created_at, id;

-- name: claim_checkpoints
-- Claim the most urgent paused checkpoints, except those that wait for a wake or until this boot has ended.
-- moves: checkpoint paused_for_restart -> resuming
UPDATE run_checkpoints
   SET status = 'resuming', token = :token, claimed_by = :boot_id, lease_until = :now + :lease,
       attempts = attempts + 1, updated_at = :now
 WHERE id IN (
         SELECT id FROM run_checkpoints
          WHERE status = 'paused_for_restart' AND wake_id IS NULL AND (claimed_by IS NULL OR claimed_by <> :boot_id)
          ORDER BY priority, created_at, id
          LIMIT :limit
       )
   AND status = 'paused_for_restart'
RETURNING *;

-- name: paused_checkpoints_of_tree
-- The most urgent paused checkpoints of a task that has not ended and of its descendants.
-- CROSS JOIN makes SQLite's planner read the few tasks first, then the checkpoints of each.
WITH RECURSIVE tree (id) AS (
       SELECT id FROM tasks WHERE id = :task_id AND ended_at IS NULL
        UNION
       SELECT tasks.id FROM tasks JOIN tree ON tasks.parent_task_id = tree.id WHERE tasks.ended_at IS NULL
     )
SELECT run_checkpoints.id FROM tree CROSS JOIN run_checkpoints
 WHERE run_checkpoints.task_id = tree.id AND run_checkpoints.status = 'paused_for_restart'
   AND run_checkpoints.wake_id IS NULL
 ORDER BY run_checkpoints.priority, run_checkpoints.created_at, run_checkpoints.id LIMIT :limit;

-- name: claim_checkpoint
-- Claim one paused checkpoint, unless it waits for a wake or until this boot has ended.
-- moves: checkpoint paused_for_restart -> resuming
UPDATE run_checkpoints
   SET status = 'resuming', token = :token, claimed_by = :boot_id, lease_until = :now + :lease,
       attempts = attempts + 1, updated_at = :now
 WHERE id = :id AND status = 'paused_for_restart' AND wake_id IS NULL AND (claimed_by IS NULL OR claimed_by <> :boot_id)
RETURNING *;

-- name: free_woken_checkpoint
-- The wake that a checkpoint waited for has fired: it may be claimed.
UPDATE run_checkpoints SET wake_id = NULL, updated_at = :now
 WHERE id = :id AND wake_id = :wake_id AND status = 'paused_for_restart'
RETURNING task_id;

-- name: checkpoint_that_waits
-- The checkpoint that waits for this wake. It scans, so it is only for a wake whose row is damaged.
SELECT id FROM run_checkpoints WHERE wake_id = :wake_id AND status = 'paused_for_restart' ORDER BY id LIMIT 1;

-- name: set_checkpoint_resumed
-- The follow-up run exists; the resumer still holds the checkpoint.
-- moves: checkpoint resuming -> resumed
UPDATE run_checkpoints
   SET status = 'resumed', resumed_run_id = :resumed_run_id, diagnostic = :diagnostic, lease_until = NULL,
       updated_at = :now
 WHERE id = :id AND token = :token AND status = 'resuming'
RETURNING id;

-- name: hold_checkpoints
-- Those of these checkpoints that this resumer still holds, locked until the transaction ends.
SELECT id FROM run_checkpoints WHERE id IN :ids[] AND token = :token AND status = 'resuming' ORDER BY id;

-- name: set_checkpoint_failed
-- It will not be resumed; the diagnostic says why.
-- moves: checkpoint paused_for_restart|resuming -> failed_resume
UPDATE run_checkpoints
   SET status = 'failed_resume', diagnostic = :diagnostic, lease_until = NULL, updated_at = :now
 WHERE id = :id AND status = :from AND status IN ('paused_for_restart', 'resuming')
RETURNING id;

-- name: return_checkpoints
-- Their resumer died or let the lease lapse before it created the follow-up runs.
-- moves: checkpoint resuming -> paused_for_restart
UPDATE run_checkpoints
   SET status = 'paused_for_restart', token = NULL, claimed_by = NULL, lease_until = NULL, updated_at = :now
 WHERE id IN :ids[] AND status = 'resuming'
RETURNING id, run_id, task_id;

-- name: renew_resumes
-- A resumer that needs more time renews its leases.
UPDATE run_checkpoints SET lease_until = :now + :lease
 WHERE id IN :ids[] AND token = :token AND status = 'resuming'
RETURNING id;

-- name: resuming_of_boot
-- The checkpoints that a boot is resuming.
SELECT * FROM run_checkpoints
 WHERE claimed_by = :boot_id AND status = 'resuming'
 ORDER BY priority, created_at, id LIMIT :limit;

-- name: lapsed_resumes
-- Checkpoints whose resumer let the lease lapse.
SELECT * FROM run_checkpoints
 WHERE status = 'resuming' AND lease_until <= :now
 ORDER BY priority, created_at, id LIMIT :limit;

-- name: lock_resuming
-- Those of these checkpoints that are still being resumed, locked until this transaction ends.
SELECT * FROM run_checkpoints WHERE id IN :ids[] AND status = 'resuming' ORDER BY id;

-- name: checkpoints_to_prune
-- Recorded or settled checkpoints older than a moment whose task has ended.
SELECT c.id, c.status FROM run_checkpoints AS c JOIN tasks AS t ON t.id = c.task_id
 WHERE c.id < :before AND c.updated_at <= :older_than AND t.ended_at IS NOT NULL
   AND COALESCE(c.status, 'resumed') IN ('resumed', 'failed_resume')
 ORDER BY c.id LIMIT :limit;

-- name: delete_checkpoints
-- Retention.
DELETE FROM run_checkpoints WHERE id IN :ids[] RETURNING status;

-- name: delete_checkpoints_of_tasks
-- Retention.
DELETE FROM run_checkpoints WHERE task_id IN :ids[] RETURNING status;
