-- name: insert_task
-- A new task; the same id again changes nothing, so that a write may be run twice.
INSERT INTO tasks
VALUES (:id, :owner, :runtime, :name, :goal, :arguments, :origin, :session_key, :parent_task_id, :flow_id,
        :dedup_key, :notify, :created_at, :digest, :status, :priority, :waits_on, :progress, :result,
        :result_digest, :failure, :cancel_requested_at, :cancel_reason, :updated_at, :started_at, :ended_at,
        :cleanup_after)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_task
-- One task by its whole id.
SELECT * FROM tasks WHERE id = :id;

-- name: get_tasks
-- Several tasks by their ids.
SELECT * FROM tasks WHERE id IN :ids[] ORDER BY id;

-- name: ended_tasks
-- Which of several tasks have ended, for whoever waits for them.
SELECT id FROM tasks WHERE id IN :ids[] AND ended_at IS NOT NULL;

-- name: lock_task
-- One task, to be changed in this transaction.
SELECT * FROM tasks WHERE id = :id;

-- name: find_tasks
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, owner FROM tasks WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: find_tasks_of_owner
-- The same among one owner's: whose else there are is no concern of theirs.
SELECT id, owner FROM tasks WHERE owner = :owner AND id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: page_of_tasks
-- Newest first, a page at a time.
SELECT * FROM tasks
 WHERE id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_in_status
-- Newest first among those in one status.
SELECT * FROM tasks
 WHERE status = :status AND id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_owner
-- Newest first among one owner's.
SELECT * FROM tasks
 WHERE owner = :owner AND id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_owner_in_status
-- Newest first among one owner's in one status.
SELECT * FROM tasks
 WHERE owner = :owner AND status = :status AND id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_named_tasks
-- Newest first among those with one of these names; of an owner or in a status, where one is given.
SELECT * FROM tasks
 WHERE name IN :names[] AND id < :before
   AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
   AND (CAST(:status AS TEXT) IS NULL OR status = :status)
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_by_end
-- Those that have ended, last ended first: every end stamps its task for clean-up after the same time.
SELECT * FROM tasks
 WHERE cleanup_after IS NOT NULL AND (cleanup_after, id) < (:cleanup_after, :before)
 ORDER BY cleanup_after DESC, id DESC LIMIT :limit;

-- name: children_of_task
-- The tasks that a task started.
SELECT * FROM tasks WHERE parent_task_id = :task_id ORDER BY id;

-- name: children_of_task_alive
-- Of the tasks that a task started, those that have not ended.
SELECT * FROM tasks WHERE parent_task_id = :task_id AND ended_at IS NULL ORDER BY id;

-- name: newest_children_of_task
-- The tasks that a task started last, for whoever looks.
SELECT * FROM tasks WHERE parent_task_id = :task_id ORDER BY id DESC LIMIT :limit;

-- name: move_task
-- A task follows its run to another status; the guard names the status it was read in.
UPDATE tasks
   SET status = :to, waits_on = :waits_on, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END
 WHERE id = :id AND status = :from AND status IN :sources[]
RETURNING id;

-- name: move_tasks
-- Several tasks follow their runs from one status to another.
UPDATE tasks
   SET status = :to, waits_on = :waits_on, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END
 WHERE id IN :ids[] AND status = :from AND status IN :sources[]
RETURNING id;

-- name: end_task
-- A task reaches its end, with a result or a failure, and is stamped for clean-up.
UPDATE tasks
   SET status = :to, waits_on = NULL, result = :result, result_digest = :result_digest, failure = :failure,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = :from AND status IN :sources[]
RETURNING id;

-- name: end_running_task
-- The same for a task whose run was carried to its end.
-- moves: task running -> succeeded|failed|timed_out|cancelled|lost
UPDATE tasks
   SET status = :to, waits_on = NULL, result = :result, result_digest = :result_digest, failure = :failure,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = 'running' AND :to IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')
RETURNING id;

-- name: lock_running_tasks
-- Of these tasks, those that are running, to be changed in this transaction.
SELECT id FROM tasks WHERE id IN :ids[] AND status = 'running';

-- name: succeed_task
-- One of many that were carried to a good end; it was found to be running in the same transaction.
-- moves: task running -> succeeded
UPDATE tasks
   SET status = 'succeeded', waits_on = NULL, result = :result, result_digest = :result_digest, failure = NULL,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = 'running';

-- name: reopen_task
-- A person opens the way back from a failed resume; the time of the task is counted anew.
-- moves: task failed -> paused (reopen)
UPDATE tasks
   SET status = 'paused', waits_on = :waits_on, failure = NULL, updated_at = :now, started_at = NULL, ended_at = NULL,
       cleanup_after = NULL, cancel_requested_at = NULL, cancel_reason = NULL
 WHERE id = :id AND status = 'failed'
RETURNING id;

-- name: go_on_with_task
-- A task that ended without success goes on, because a person or its parent wants it.
-- Its time is counted anew, and a cancel of before is over.
-- moves: task failed|timed_out|cancelled|lost -> queued (reopen)
UPDATE tasks
   SET status = 'queued', waits_on = NULL, failure = NULL, updated_at = :now, started_at = NULL, ended_at = NULL,
       cleanup_after = NULL, cancel_requested_at = NULL, cancel_reason = NULL
 WHERE id = :id AND status IN ('failed', 'timed_out', 'cancelled', 'lost')
RETURNING id;

-- name: request_cancel
-- Cancel is a sticky intent: the first reason stays.
UPDATE tasks
   SET cancel_requested_at = :now, cancel_reason = :reason, updated_at = :now
 WHERE id = :id AND cancel_requested_at IS NULL AND ended_at IS NULL
RETURNING id;

-- name: cancels_requested
-- Which of these tasks somebody wants to end.
SELECT id FROM tasks WHERE id IN :ids[] AND cancel_requested_at IS NOT NULL;

-- name: save_progress
-- How far a running task says it is; only the holder of its run may say so.
UPDATE tasks
   SET progress = :progress, updated_at = :now
 WHERE id = :task_id
   AND EXISTS (SELECT 1 FROM runs
                WHERE runs.id = :run_id AND fence = :fence AND runs.status = 'running' AND task_id = tasks.id)
RETURNING id;

-- name: tasks_to_prune
-- Ended tasks whose retention is over, oldest first; not while an effect or a delivery of theirs is open.
SELECT id, status, owner FROM tasks
 WHERE cleanup_after <= :now
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
 ORDER BY cleanup_after, id LIMIT :limit;

-- name: delete_tasks
-- The last trace but the tombstone of its dedup key.
DELETE FROM tasks WHERE id IN :ids[] RETURNING status;

-- name: insert_key
-- A dedup key for a new task; the first one stays.
INSERT INTO dedup_keys (owner, key, task_id, arguments_digest, created_at)
VALUES (:owner, :key, :task_id, :arguments_digest, :now)
ON CONFLICT (owner, key) DO NOTHING
RETURNING task_id;

-- name: get_key
-- Who has that key.
SELECT task_id, arguments_digest, ended_as FROM dedup_keys WHERE owner = :owner AND key = :key;

-- name: bury_keys
-- The keys of pruned tasks become tombstones with an end; they still know how the task ended.
UPDATE dedup_keys
   SET expires_at = :expires_at, ended_as = (SELECT status FROM tasks WHERE tasks.id = dedup_keys.task_id)
 WHERE task_id IN :ids[] AND EXISTS (SELECT 1 FROM tasks WHERE tasks.id = dedup_keys.task_id);

-- name: delete_expired_keys
-- Tombstones whose time is over.
DELETE FROM dedup_keys WHERE expires_at <= :now;
