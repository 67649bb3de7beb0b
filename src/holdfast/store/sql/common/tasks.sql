-- name: insert_task
-- A new task; the same id again changes nothing, so that a write may be run twice.
INSERT INTO tasks
VALUES (:id, :owner, :runtime, :name, :goal, :arguments, :origin, :session_key, :parent_task_id, :flow_id,
        :dedup_key, :notify, :created_at, :digest, :status, :priority, :waits_on, :progress, :result,
        :result_digest, :failure, :cancel_requested_at, :cancel_reason, :updated_at, :started_at, :ended_at,
        :cleanup_after, :campaign_id)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_task
-- One task by its whole id.
SELECT * FROM tasks WHERE id = :id;

-- name: get_tasks
-- Several tasks by their ids.
SELECT * FROM tasks WHERE id IN :ids[] ORDER BY id;

-- name: ended_tasks
-- Which of several tasks have ended.
SELECT id FROM tasks WHERE id IN :ids[] AND ended_at IS NOT NULL;

-- name: lock_task
-- One task, locked until this transaction ends.
SELECT * FROM tasks WHERE id = :id;

-- name: find_tasks
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, owner FROM tasks WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: find_tasks_of_owner
-- The same among one owner's tasks; those of others must not show.
SELECT id, owner FROM tasks WHERE owner = :owner AND id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: page_of_tasks
-- Newest first, a page at a time.
SELECT * FROM tasks
 WHERE id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_in_status
-- Those in one status, newest first.
SELECT * FROM tasks
 WHERE status = :status AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: oldest_task_in_status
-- The one that was created first.
SELECT * FROM tasks WHERE status = :status ORDER BY id LIMIT 1;

-- name: page_of_tasks_of_owner
-- Those of one owner, newest first.
SELECT * FROM tasks
 WHERE owner = :owner AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_owner_in_status
-- Those of one owner in one status, newest first.
SELECT * FROM tasks
 WHERE owner = :owner AND status = :status AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_name
-- Those with one name, newest first.
SELECT * FROM tasks
 WHERE name = :name AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_runtime
-- Those of one runtime, newest first.
SELECT * FROM tasks
 WHERE runtime = :runtime AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_key
-- Those with one dedup key, newest first: each owner may have one.
SELECT * FROM tasks
 WHERE dedup_key IS NOT NULL AND dedup_key = :key AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_session
-- Those of one session, newest first.
SELECT * FROM tasks
 WHERE session_key IS NOT NULL AND session_key = :session_key AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_of_agent
-- Those of the sessions of one agent, newest first.
SELECT * FROM tasks
 WHERE session_key >= 'agent:' AND session_key < 'agent;'
   AND substr(session_key, 7, instr(substr(session_key, 7), ':') - 1) = :agent
   AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;

-- name: page_of_tasks_by_end
-- Ended tasks, last ended first, through the index tasks_by_end; it has no tasks that a sweep has yet to stamp.
SELECT * FROM tasks
 WHERE cleanup_after IS NOT NULL AND (ended_at, id) < (:ended_at, :before)
 ORDER BY ended_at DESC, id DESC LIMIT :limit;

-- name: children_of_task
-- The tasks that a task started.
SELECT * FROM tasks WHERE parent_task_id = :task_id ORDER BY id;

-- name: children_of_task_alive
-- Those tasks that a task started and that have not ended.
SELECT * FROM tasks WHERE parent_task_id = :task_id AND ended_at IS NULL ORDER BY id;

-- name: families_of_tasks
-- These tasks and all that they started, directly or not, each with the one of these from which it comes.
WITH RECURSIVE tree (task_id, root_id) AS (
  SELECT id, id FROM tasks WHERE id IN :ids[]
  UNION
  SELECT tasks.id, tree.root_id FROM tree JOIN tasks ON tasks.parent_task_id = tree.task_id
)
SELECT tasks.id, tree.root_id, tasks.parent_task_id, tasks.ended_at FROM tree JOIN tasks ON tasks.id = tree.task_id;

-- name: newest_children_of_task
-- The tasks that a task started last, for display.
SELECT * FROM tasks WHERE parent_task_id = :task_id ORDER BY id DESC LIMIT :limit;

-- name: durations_of_name
-- When the newest tasks of a name started and ended, and how, through the index of names.
SELECT COALESCE(started_at, created_at), COALESCE(ended_at, updated_at), status FROM tasks
 WHERE name = :name ORDER BY id DESC LIMIT :limit;

-- name: move_task
-- Move a task as its run moved; the guard is the status it was read in.
UPDATE tasks
   SET status = :to, waits_on = :waits_on, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END
 WHERE id = :id AND status = :from AND status IN :sources[]
RETURNING id;

-- name: move_tasks
-- Move several tasks as their runs moved.
UPDATE tasks
   SET status = :to, waits_on = :waits_on, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END
 WHERE id IN :ids[] AND status = :from AND status IN :sources[]
RETURNING id;

-- name: end_task
-- End a task with a result or a failure, and set when to clean it up.
UPDATE tasks
   SET status = :to, waits_on = NULL, result = :result, result_digest = :result_digest, failure = :failure,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = :from AND status IN :sources[]
RETURNING id;

-- name: end_running_task
-- The same for a task whose run has just ended.
-- moves: task running -> succeeded|failed|timed_out|cancelled|lost
UPDATE tasks
   SET status = :to, waits_on = NULL, result = :result, result_digest = :result_digest, failure = :failure,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = 'running' AND :to IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')
RETURNING id;

-- name: lock_running_tasks
-- Those of these tasks that are running, locked until this transaction ends.
SELECT id FROM tasks WHERE id IN :ids[] AND status = 'running';

-- name: succeed_task
-- One of many tasks that succeeded; this transaction has checked that it is running.
-- moves: task running -> succeeded
UPDATE tasks
   SET status = 'succeeded', waits_on = NULL, result = :result, result_digest = :result_digest, failure = NULL,
       updated_at = :now, ended_at = :now, cleanup_after = :cleanup_after
 WHERE id = :id AND status = 'running';

-- name: reopen_task
-- An operator retries a failed resume; the time limit of the task starts again.
-- moves: task failed -> paused (reopen)
UPDATE tasks
   SET status = 'paused', waits_on = :waits_on, failure = NULL, updated_at = :now, started_at = NULL, ended_at = NULL,
       cleanup_after = NULL, cancel_requested_at = NULL, cancel_reason = NULL
 WHERE id = :id AND status = 'failed'
RETURNING id;

-- name: go_on_with_task
-- An operator or the parent retries a task that ended without success.
-- Its time limit starts again, and an earlier cancel no longer counts.
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

-- name: tasks_of_flow
-- The tasks of a flow, oldest first.
SELECT * FROM tasks
 WHERE flow_id IS NOT NULL AND flow_id = :flow_id AND id > :after
 ORDER BY id LIMIT :limit;

-- name: lock_tasks_to_stop_of_flow
-- Live tasks of a flow whose cancel was not requested yet, locked until this transaction ends.
SELECT id FROM tasks
 WHERE flow_id IS NOT NULL AND flow_id = :flow_id AND ended_at IS NULL AND cancel_requested_at IS NULL
 ORDER BY id LIMIT :limit;

-- name: tasks_to_stop_of_flow
-- The same without locking them.
SELECT id FROM tasks
 WHERE flow_id IS NOT NULL AND flow_id = :flow_id AND ended_at IS NULL AND cancel_requested_at IS NULL
   AND id > :after
 ORDER BY id LIMIT :limit;

-- name: link_task
-- An existing task becomes part of a flow. The digest covers the flow, so a damaged row is left as it is.
UPDATE tasks SET flow_id = :flow_id, digest = :digest, updated_at = :now
 WHERE id = :id AND flow_id IS NULL AND digest = :from
RETURNING id;

-- name: set_notify
-- Which updates the requester gets. The digest covers the policy, so a damaged row is left as it is.
UPDATE tasks
   SET notify = :notify, digest = :digest, updated_at = :now
 WHERE id = :id AND ended_at IS NULL AND digest = :from
RETURNING id;

-- name: get_notify
-- Which updates the requester gets now: a worker has the task as it was when it claimed the run.
SELECT notify FROM tasks WHERE id = :id;

-- name: cancels_requested
-- Which of these tasks have a request to cancel.
SELECT id FROM tasks WHERE id IN :ids[] AND cancel_requested_at IS NOT NULL;

-- name: save_progress
-- The progress of a running task; only the holder of its run may report it.
UPDATE tasks
   SET progress = :progress, updated_at = :now
 WHERE id = :task_id
   AND EXISTS (SELECT 1 FROM runs
                WHERE runs.id = :run_id AND fence = :fence AND runs.status = 'running' AND task_id = tasks.id)
RETURNING id;

-- name: tasks_to_prune
-- Ended tasks whose retention is over, oldest first; not while an effect, a delivery or their flow is open.
SELECT id, status, owner FROM tasks
 WHERE cleanup_after <= :now
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
   AND (flow_id IS NULL OR (SELECT flows.ended_at IS NULL FROM flows WHERE flows.id = tasks.flow_id) IS NOT TRUE)
 ORDER BY cleanup_after, id LIMIT :limit;

-- name: tasks_past_retention
-- The same tasks for a preview, which locks nothing; the index tasks_to_clean.
SELECT id FROM tasks
 WHERE cleanup_after <= :now
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
   AND (flow_id IS NULL OR (SELECT flows.ended_at IS NULL FROM flows WHERE flows.id = tasks.flow_id) IS NOT TRUE)
 ORDER BY cleanup_after, id LIMIT :limit;

-- name: tasks_past_limit_of_runtime
-- Tasks of a runtime that ended long ago, first ended first, through the index tasks_by_runtime_end.
-- Lost tasks are a kind of their own.
SELECT * FROM tasks
 WHERE runtime = :runtime AND cleanup_after IS NOT NULL AND ended_at <= :before AND status <> 'lost'
 ORDER BY ended_at, id LIMIT :limit;

-- name: tasks_past_limit_lost
-- Lost tasks that ended long ago; lost tasks are few.
SELECT * FROM tasks
 WHERE status = 'lost' AND cleanup_after IS NOT NULL AND ended_at <= :before
 ORDER BY id LIMIT :limit;

-- name: lock_tasks_to_prune
-- Those of these tasks that have ended, and of which no effect, no delivery and no flow is open.
SELECT id, status, owner, ended_at FROM tasks
 WHERE id IN :ids[] AND ended_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
   AND (flow_id IS NULL OR (SELECT flows.ended_at IS NULL FROM flows WHERE flows.id = tasks.flow_id) IS NOT TRUE)
 ORDER BY id;

-- name: restamp_task
-- A new time to clean up an ended task, unless it was changed since it was read.
UPDATE tasks SET cleanup_after = :cleanup_after
 WHERE id = :id AND ended_at = :ended_at AND cleanup_after = :seen
RETURNING id;

-- name: unstamped_tasks
-- Ended tasks without a time to clean them up, first ended first. The index tasks_unstamped holds only these.
SELECT * FROM tasks
 WHERE ended_at IS NOT NULL AND cleanup_after IS NULL AND ended_at <= :now
 ORDER BY ended_at, id LIMIT :limit;

-- name: stamp_task
-- When to clean up an ended task that has no such time.
UPDATE tasks SET cleanup_after = :cleanup_after
 WHERE id = :id AND ended_at IS NOT NULL AND cleanup_after IS NULL
RETURNING id;

-- name: delete_tasks
-- Retention; the tombstones of their dedup keys stay.
DELETE FROM tasks WHERE id IN :ids[] RETURNING status, runtime;

-- name: insert_key
-- A dedup key for a new task; the first one stays.
INSERT INTO dedup_keys (owner, key, task_id, arguments_digest, created_at)
VALUES (:owner, :key, :task_id, :arguments_digest, :now)
ON CONFLICT (owner, key) DO NOTHING
RETURNING task_id;

-- name: get_key
-- The task that has this dedup key.
SELECT task_id, arguments_digest, ended_as FROM dedup_keys WHERE owner = :owner AND key = :key;

-- name: bury_keys
-- The keys of pruned tasks become tombstones that expire; they still record how the task ended.
UPDATE dedup_keys
   SET expires_at = :expires_at, ended_as = (SELECT status FROM tasks WHERE tasks.id = dedup_keys.task_id)
 WHERE task_id IN :ids[] AND EXISTS (SELECT 1 FROM tasks WHERE tasks.id = dedup_keys.task_id);

-- name: delete_expired_keys
-- Expired tombstones.
DELETE FROM dedup_keys WHERE expires_at <= :now;
