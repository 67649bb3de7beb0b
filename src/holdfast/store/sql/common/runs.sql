-- name: insert_run
-- A new run; the same id again changes nothing, so that a write may be run twice.
INSERT INTO runs
VALUES (:id, :task_id, :task_name, :number, :resumes_run_id, :checkpoint_id, :seed, :created_at, :digest,
        :status, :priority, :due_at, :queue, :is_alone, :idle_attempts, :claimed_by, :claim_token, :fence,
        :lease_until, :beat_at, :waits_on, :failure, :updated_at, :started_at, :ended_at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_run
-- One run by its whole id.
SELECT * FROM runs WHERE id = :id;

-- name: find_runs
-- Runs whose ids begin with a prefix; three are enough to know whether it is unique.
SELECT id, task_id FROM runs WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: get_runs
-- Several runs by their ids.
SELECT * FROM runs WHERE id IN :ids[] ORDER BY id;

-- name: lock_run
-- One run, locked until this transaction ends.
SELECT * FROM runs WHERE id = :id;

-- name: live_run_of_task
-- The one run of a task that has not ended, if there is one.
SELECT * FROM runs
 WHERE task_id = :task_id AND status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming');

-- name: live_runs_of_tasks
-- The live runs of several tasks, at most one of each, through the index runs_alive.
SELECT * FROM runs
 WHERE task_id IN :ids[] AND status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming');

-- name: recorded_runs
-- Runs of recorded work that have not ended, a page at a time. The index runs_recorded holds only these.
SELECT * FROM runs
 WHERE queue = 'producer' AND ended_at IS NULL AND id > :after
 ORDER BY id LIMIT :limit;

-- name: recorded_runs_to_stop
-- Recorded work in flight whose cancel was requested, oldest first, through the index tasks_to_stop.
-- SQLite keeps the order of a cross join; otherwise it would read all recorded work in flight.
SELECT runs.* FROM tasks CROSS JOIN runs
 WHERE tasks.cancel_requested_at IS NOT NULL AND tasks.ended_at IS NULL AND tasks.id > :after
   AND runs.task_id = tasks.id AND runs.queue = 'producer'
   AND runs.status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming')
 ORDER BY tasks.id LIMIT :limit;

-- name: beat_run
-- A runtime has proved that recorded work is alive; the guard is the fence.
UPDATE runs SET beat_at = :now
 WHERE id = :id AND fence = :fence AND status = 'running' AND queue = 'producer'
RETURNING id;

-- name: hand_over_run
-- The process that held recorded work is dead, and a runtime may find the work again; the guard is the fence.
UPDATE runs SET claimed_by = :claimed_by
 WHERE id = :id AND fence = :fence AND status = 'running' AND queue = 'producer'
RETURNING id;

-- name: runs_of_task
-- The runs of a task, first to last.
SELECT * FROM runs WHERE task_id = :task_id ORDER BY number LIMIT :limit;

-- name: last_run_of_task
-- The newest run of a task.
SELECT * FROM runs WHERE task_id = :task_id ORDER BY number DESC LIMIT 1;

-- name: last_run_ids_of_tasks
-- The newest run of each of these tasks.
SELECT runs.task_id, runs.id FROM runs
 WHERE runs.task_id IN :ids[]
   AND runs.number = (SELECT MAX(other.number) FROM runs AS other WHERE other.task_id = runs.task_id)
 ORDER BY runs.task_id;

-- name: count_failed_runs
-- How many runs of the task have failed.
SELECT COUNT(*) FROM runs WHERE task_id = :task_id AND status = 'failed';

-- name: last_number
-- How many runs the task has had.
SELECT COALESCE(MAX(number), 0) FROM runs WHERE task_id = :task_id;

-- name: claims_with_token
-- What a worker holds already, if the answer to its claim was lost.
SELECT * FROM runs
 WHERE claimed_by = :boot_id AND claim_token = :token AND status = 'running'
 ORDER BY priority, due_at, id;

-- name: claim_ready_runs
-- Claim the most urgent ready runs, each with a new fence.
-- moves: run queued -> running
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = :now + :lease, beat_at = :now, updated_at = :now, started_at = COALESCE(started_at, :now)
 WHERE id IN (
         SELECT id FROM runs
          WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0
          ORDER BY priority, due_at, id
          LIMIT :limit
       )
   AND status = 'queued'
RETURNING *;

-- name: ready_runs_since
-- Ready runs created since a moment.
SELECT id FROM runs
 WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0 AND created_at >= :since
   AND (CAST(:is_any AS bigint) = 1 OR task_name IN :names[])
 ORDER BY priority, due_at, id
 LIMIT :limit;

-- name: claim_named_runs
-- The same among the task names that the worker can execute.
-- moves: run queued -> running
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = :now + :lease, beat_at = :now, updated_at = :now, started_at = COALESCE(started_at, :now)
 WHERE id IN (
         SELECT id FROM runs
          WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0 AND task_name IN :names[]
          ORDER BY priority, due_at, id
          LIMIT :limit
       )
   AND status = 'queued'
RETURNING *;

-- name: suspects_waiting
-- The most urgent suspect, if one is ready.
SELECT id, task_name, due_at FROM runs
 WHERE status = 'queued' AND queue = 'ready' AND is_alone = 1
 ORDER BY priority, due_at, id LIMIT :limit;

-- name: boot_carries_suspect
-- Whether a boot executes a suspect that must be alone.
SELECT 1 FROM runs WHERE claimed_by = :boot_id AND status = 'running' AND is_alone = 1 LIMIT 1;

-- name: boot_carries_any
-- Whether a boot executes any run.
SELECT 1 FROM runs WHERE claimed_by = :boot_id AND status = 'running' LIMIT 1;

-- name: claim_run
-- Claim one run, with a new fence.
-- moves: run queued|waiting -> running
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = :now + :lease, beat_at = :now, updated_at = :now, started_at = COALESCE(started_at, :now),
       waits_on = NULL
 WHERE id = :id AND status = :from AND status IN ('queued', 'waiting')
RETURNING id;

-- name: renew_claims
-- The holder renews its leases; only claims that it still holds are renewed.
UPDATE runs
   SET lease_until = :now + :lease, beat_at = :now
 WHERE id IN :ids[] AND claimed_by = :boot_id AND status = 'running'
RETURNING id, fence, lease_until;

-- name: exonerate_run
-- A suspect that made progress, or ran long enough, no longer needs to be alone.
UPDATE runs SET is_alone = 0, updated_at = :now
 WHERE id = :id AND fence = :fence AND status = 'running' AND is_alone = 1
RETURNING id;

-- name: release_run
-- The holder releases the run, so that any worker can claim it; recorded work stays with its producer.
-- moves: run running -> queued
UPDATE runs
   SET status = 'queued', claimed_by = NULL, claim_token = NULL, lease_until = NULL, due_at = :due_at,
       queue = CASE WHEN queue = 'producer' THEN queue ELSE :queue END, fence = fence + 1, updated_at = :now
 WHERE id = :id AND fence = :fence AND status = 'running'
RETURNING id;

-- name: wait_run
-- The run waits for something named, without a claim.
-- moves: run running -> waiting
UPDATE runs
   SET status = 'waiting', claimed_by = NULL, claim_token = NULL, lease_until = NULL, waits_on = :waits_on,
       due_at = :due_at, fence = fence + 1, updated_at = :now
 WHERE id = :id AND fence = :fence AND status = 'running'
RETURNING id;

-- name: wake_run
-- The wait is over: the same run becomes ready to be claimed again.
-- moves: run waiting -> queued
UPDATE runs
   SET status = 'queued', queue = CASE WHEN queue = 'producer' THEN queue ELSE 'ready' END, waits_on = NULL,
       due_at = :now, updated_at = :now
 WHERE id = :id AND status = 'waiting'
RETURNING id;

-- name: end_run
-- The holder ends its run; the guard is the fence.
-- moves: run running -> succeeded|failed|timed_out|cancelled|lost
UPDATE runs
   SET status = :to, failure = :failure, lease_until = NULL, updated_at = :now, ended_at = :now
 WHERE id = :id AND fence = :fence AND status = 'running'
   AND :to IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')
RETURNING id;

-- name: succeed_runs
-- Several holders end their runs with success; the guard is the fence of each.
-- moves: run running -> succeeded
UPDATE runs
   SET status = 'succeeded', failure = NULL, lease_until = NULL, updated_at = :now, ended_at = :now
 WHERE id IN :ids[] AND id || ':' || fence IN :held[] AND status = 'running'
RETURNING id;

-- name: end_idle_run
-- End a run that no worker holds; the guard is the status it was read in.
-- moves: run queued|waiting -> failed|timed_out|cancelled|lost
-- moves: run paused_for_restart|resuming -> cancelled
UPDATE runs
   SET status = :to, failure = :failure, claimed_by = NULL, lease_until = NULL, waits_on = NULL,
       fence = fence + 1, updated_at = :now, ended_at = :now
 WHERE id = :id AND status = :from
   AND (status IN ('queued', 'waiting') AND :to IN ('failed', 'timed_out', 'cancelled', 'lost')
        OR status IN ('paused_for_restart', 'resuming') AND :to = 'cancelled')
RETURNING id;

-- name: pause_runs
-- Pause runs that have a checkpoint; the higher fence refuses later writes of their holder.
-- moves: run running -> paused_for_restart
UPDATE runs
   SET status = 'paused_for_restart', fence = fence + 1, lease_until = NULL, updated_at = :now
 WHERE id IN :ids[] AND status = 'running'
RETURNING id;

-- name: set_runs_resuming
-- The runs of claimed checkpoints.
-- moves: run paused_for_restart -> resuming
UPDATE runs SET status = 'resuming', updated_at = :now
 WHERE id IN :ids[] AND status = 'paused_for_restart'
RETURNING id;

-- name: set_runs_paused_again
-- The runs of checkpoints whose resumer died.
-- moves: run resuming -> paused_for_restart
UPDATE runs SET status = 'paused_for_restart', updated_at = :now
 WHERE id IN :ids[] AND status = 'resuming'
RETURNING id;

-- name: set_runs_resumed
-- The runs that a follow-up run continues.
-- moves: run resuming -> resumed
UPDATE runs SET status = 'resumed', updated_at = :now, ended_at = :now
 WHERE id IN :ids[] AND status = 'resuming'
RETURNING id;

-- name: set_run_failed_resume
-- The run that cannot be continued.
-- moves: run paused_for_restart|resuming -> failed_resume
UPDATE runs SET status = 'failed_resume', failure = :failure, updated_at = :now, ended_at = :now
 WHERE id = :id AND status = :from AND status IN ('paused_for_restart', 'resuming')
RETURNING id;

-- name: ready_due_runs
-- Move due runs to the ready queue.
UPDATE runs SET queue = 'ready', updated_at = :now
 WHERE id IN (
         SELECT id FROM runs
          WHERE status = 'queued' AND queue = 'later' AND due_at <= :now
          ORDER BY due_at, id LIMIT :limit
       )
   AND status = 'queued' AND queue = 'later'
RETURNING id;

-- name: waits_over
-- Waiting runs that are due.
SELECT id, task_id FROM runs
 WHERE status = 'waiting' AND due_at <= :now
 ORDER BY due_at, id LIMIT :limit;

-- name: last_wait_written
-- When the last retry was queued for later, and when the last run began to wait, through indexes.
-- A task's first run has the due time that its requester named, which stays.
SELECT MAX(updated_at) FROM runs WHERE status = 'queued' AND queue = 'later' AND number > 1
 UNION ALL
SELECT MAX(updated_at) FROM runs WHERE status = 'waiting' AND number > 0;

-- name: reschedule_runs_ahead
-- Retries that were queued after that moment, when the clock was ahead: the rest of their delay begins now.
UPDATE runs SET due_at = :now + due_at - updated_at, updated_at = :now
 WHERE id IN (
         SELECT id FROM runs
          WHERE status = 'queued' AND queue = 'later' AND number > 1 AND updated_at > :moment
          ORDER BY updated_at, id LIMIT :limit
       )
   AND status = 'queued' AND queue = 'later' AND number > 1 AND updated_at > :moment;

-- name: waits_ahead
-- Runs that began to wait after that moment, when the clock was ahead.
SELECT id FROM runs
 WHERE status = 'waiting' AND number > 0 AND updated_at > :moment
 ORDER BY updated_at, id LIMIT :limit;

-- name: waiting_runs
-- Waiting runs, the first due first, a page at a time, for display.
SELECT * FROM runs
 WHERE status = 'waiting' AND (due_at, id) > (:due_at, :after)
 ORDER BY due_at, id LIMIT :limit;

-- name: runs_waiting_on
-- Runs that wait for exactly this. It scans all waiting runs, so use it for rare events only.
SELECT id, task_id FROM runs WHERE status = 'waiting' AND waits_on = :waits_on ORDER BY due_at, id;

-- name: next_due_runs
-- When the next run becomes due: the first queued for later, and the first that sleeps.
SELECT MIN(due_at) FROM runs WHERE status = 'queued' AND queue = 'later'
 UNION ALL
SELECT MIN(due_at) FROM runs WHERE status = 'waiting' AND waits_on IS NOT NULL;

-- name: find_ready_run
-- Whether a run of these names is ready: an ordinary one, or a suspect.
SELECT 1 FROM runs
 WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0 AND task_name IN :names[]
 UNION ALL
SELECT 1 FROM runs
 WHERE status = 'queued' AND queue = 'ready' AND is_alone = 1 AND task_name IN :names[]
 LIMIT 1;

-- name: ready_runs_of_tree
-- The most urgent ready runs of a task that has not ended and of its descendants.
-- CROSS JOIN makes SQLite's planner read the few tasks first, then the runs of each.
WITH RECURSIVE tree (id) AS (
       SELECT id FROM tasks WHERE id = :task_id AND ended_at IS NULL
        UNION
       SELECT tasks.id FROM tasks JOIN tree ON tasks.parent_task_id = tree.id WHERE tasks.ended_at IS NULL
     )
SELECT runs.id, runs.is_alone, runs.due_at FROM tree CROSS JOIN runs
 WHERE runs.task_id = tree.id AND runs.status = 'queued' AND runs.queue = 'ready' AND runs.task_name IN :names[]
 ORDER BY runs.priority, runs.due_at, runs.id LIMIT :limit;

-- name: names_of_ready_runs
-- The names of tasks with ready runs.
SELECT task_name FROM runs WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0
 UNION
SELECT task_name FROM runs WHERE status = 'queued' AND queue = 'ready' AND is_alone = 1
 ORDER BY task_name LIMIT :limit;

-- name: runs_of_boot
-- The runs that a boot executes, by priority; also recorded work that the process itself does.
SELECT * FROM runs
 WHERE claimed_by = :boot_id AND status = 'running'
 ORDER BY priority, due_at, id LIMIT :limit;

-- name: count_of_boot
-- How many runs a boot executes.
SELECT COUNT(*) FROM runs WHERE claimed_by = :boot_id AND status = 'running';

-- name: lapsed_runs
-- Runs whose holder let the lease lapse; recorded work is left to the sweep.
SELECT * FROM runs
 WHERE status = 'running' AND queue <> 'producer' AND lease_until <= :now
 ORDER BY lease_until, id LIMIT :limit;

-- name: next_lapse
-- How long the first lease of a run and of a resume has left, in microseconds.
SELECT MIN(lease_until) - :now FROM runs WHERE status = 'running' AND queue <> 'producer'
 UNION ALL
SELECT MIN(lease_until) - :now FROM run_checkpoints WHERE status = 'resuming';

-- name: lock_running
-- Those of these runs that are still running under the same boot, locked until this transaction ends.
SELECT * FROM runs
 WHERE id IN :ids[] AND status = 'running'
 ORDER BY id;

-- name: boots_in_flight
-- Every boot that some running run or resuming checkpoint names.
SELECT DISTINCT claimed_by FROM runs WHERE status = 'running'
 UNION
SELECT DISTINCT claimed_by FROM run_checkpoints WHERE status = 'resuming';

-- name: delete_runs_of_tasks
-- Retention.
DELETE FROM runs WHERE task_id IN :ids[] RETURNING status;
