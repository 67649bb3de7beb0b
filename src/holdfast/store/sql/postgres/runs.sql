-- name: lock_run
-- One run, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM runs WHERE id = :id FOR NO KEY UPDATE;

-- name: live_run_of_task
-- The one run of a task that has not ended, if there is one.
-- Differs: it repeats the condition of its partial index, see the schema.
SELECT * FROM runs
 WHERE task_id = :task_id AND status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming')
   AND ended_at IS NULL;

-- name: live_runs_of_tasks
-- The live runs of several tasks, at most one of each, through the index runs_alive.
-- Differs: it repeats the condition of its partial index, see the schema.
SELECT * FROM runs
 WHERE task_id IN :ids[] AND status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming')
   AND ended_at IS NULL;

-- name: waits_over
-- Waiting runs that are due.
-- Differs: it repeats the condition of its partial index, see the schema.
SELECT id, task_id FROM runs
 WHERE status = 'waiting' AND waits_on IS NOT NULL AND due_at <= :now
 ORDER BY due_at, id LIMIT :limit;

-- name: boots_in_flight
-- Every boot that some running run or resuming checkpoint names.
-- Differs: it repeats the conditions of its partial indexes, see the schema.
SELECT DISTINCT claimed_by FROM runs WHERE status = 'running' AND claimed_by IS NOT NULL
 UNION
SELECT DISTINCT claimed_by FROM run_checkpoints WHERE status = 'resuming' AND claimed_by IS NOT NULL;

-- name: reschedule_runs_ahead
-- Retries that were queued after that moment, when the clock was ahead: the rest of their delay begins now.
-- Differs: rows that another process is changing are skipped.
WITH ahead AS MATERIALIZED (
       SELECT id FROM runs
        WHERE status = 'queued' AND queue = 'later' AND number > 1 AND updated_at > :moment
        ORDER BY updated_at, id LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE runs SET due_at = :now + due_at - updated_at, updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM ahead)) AND status = 'queued' AND queue = 'later' AND number > 1
   AND updated_at > :moment;

-- name: lock_running
-- Those of these runs that are still running under the same boot, locked until this transaction ends.
-- Differs: the rows are locked, in the order of their ids, so that two sweeps cannot deadlock.
SELECT * FROM runs
 WHERE id IN :ids[] AND status = 'running'
 ORDER BY id
   FOR NO KEY UPDATE;

-- name: claim_ready_runs
-- Claim the most urgent ready runs, each with a new fence.
-- Differs: rows that another worker is claiming are skipped; leases follow the database's clock.
-- moves: run queued -> running
WITH picked AS MATERIALIZED (
       SELECT id FROM runs
        WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0
        ORDER BY priority, due_at, id
        LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = (SELECT holdfast_now()) + :lease, beat_at = :now, updated_at = :now,
       started_at = COALESCE(started_at, :now)
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND status = 'queued'
RETURNING *;

-- name: claim_named_runs
-- The same among the task names that the worker can execute.
-- Differs: rows that another worker is claiming are skipped; leases follow the database's clock.
-- moves: run queued -> running
WITH picked AS MATERIALIZED (
       SELECT id FROM runs
        WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0 AND task_name IN :names[]
        ORDER BY priority, due_at, id
        LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = (SELECT holdfast_now()) + :lease, beat_at = :now, updated_at = :now,
       started_at = COALESCE(started_at, :now)
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND status = 'queued'
RETURNING *;

-- name: claim_run
-- Claim one run, with a new fence.
-- Differs: leases follow the database's clock, which all gateways share.
-- moves: run queued|waiting -> running
UPDATE runs
   SET status = 'running', claimed_by = :boot_id, claim_token = :token, fence = fence + 1,
       lease_until = (SELECT holdfast_now()) + :lease, beat_at = :now, updated_at = :now,
       started_at = COALESCE(started_at, :now), waits_on = NULL
 WHERE id = :id AND status = :from AND status IN ('queued', 'waiting')
RETURNING id;

-- name: renew_claims
-- The holder renews its leases; only claims that it still holds are renewed.
-- Differs: leases follow the database's clock; the rows are locked in the order of their ids, to avoid deadlocks.
WITH held AS MATERIALIZED (
       SELECT id FROM runs
        WHERE id IN :ids[] AND claimed_by = :boot_id AND status = 'running'
        ORDER BY id
          FOR NO KEY UPDATE
     )
UPDATE runs
   SET lease_until = (SELECT holdfast_now()) + :lease, beat_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND claimed_by = :boot_id AND status = 'running'
RETURNING id, fence, lease_until;

-- name: succeed_runs
-- Several holders end their runs with success; the guard is the fence of each.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: run running -> succeeded
WITH held AS MATERIALIZED (
       SELECT id FROM runs
        WHERE id IN :ids[] AND id || ':' || fence IN :held[] AND status = 'running'
        ORDER BY id
          FOR NO KEY UPDATE
     )
UPDATE runs
   SET status = 'succeeded', failure = NULL, lease_until = NULL, updated_at = :now, ended_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND id || ':' || fence IN :held[] AND status = 'running'
RETURNING id;

-- name: lapsed_runs
-- Runs whose holder let the lease lapse; recorded work is left to the sweep.
-- Differs: leases follow the database's clock, read once (an index cannot use a volatile function as a bound).
SELECT * FROM runs
 WHERE status = 'running' AND queue <> 'producer' AND lease_until <= (SELECT holdfast_now())
 ORDER BY lease_until, id LIMIT :limit;

-- name: next_lapse
-- How long the first lease of a run and of a resume has left, in microseconds.
-- Differs: leases follow the database's clock; it repeats the conditions of its partial indexes, see the schema.
SELECT MIN(lease_until) - (SELECT holdfast_now()) FROM runs
 WHERE status = 'running' AND queue <> 'producer' AND lease_until IS NOT NULL
 UNION ALL
SELECT MIN(lease_until) - (SELECT holdfast_now()) FROM run_checkpoints
 WHERE status = 'resuming' AND claimed_by IS NOT NULL;

-- name: pause_runs
-- Pause runs that have a checkpoint; the higher fence refuses later writes of their holder.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: run running -> paused_for_restart
WITH held AS MATERIALIZED (
       SELECT id FROM runs WHERE id IN :ids[] AND status = 'running' ORDER BY id FOR NO KEY UPDATE
     )
UPDATE runs
   SET status = 'paused_for_restart', fence = fence + 1, lease_until = NULL, updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'running'
RETURNING id;

-- name: set_runs_resuming
-- The runs of claimed checkpoints.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: run paused_for_restart -> resuming
WITH held AS MATERIALIZED (
       SELECT id FROM runs WHERE id IN :ids[] AND status = 'paused_for_restart' ORDER BY id FOR NO KEY UPDATE
     )
UPDATE runs SET status = 'resuming', updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'paused_for_restart'
RETURNING id;

-- name: set_runs_paused_again
-- The runs of checkpoints whose resumer died.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: run resuming -> paused_for_restart
WITH held AS MATERIALIZED (
       SELECT id FROM runs WHERE id IN :ids[] AND status = 'resuming' ORDER BY id FOR NO KEY UPDATE
     )
UPDATE runs SET status = 'paused_for_restart', updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'resuming'
RETURNING id;

-- name: set_runs_resumed
-- The runs that a follow-up run continues.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: run resuming -> resumed
WITH held AS MATERIALIZED (
       SELECT id FROM runs WHERE id IN :ids[] AND status = 'resuming' ORDER BY id FOR NO KEY UPDATE
     )
UPDATE runs SET status = 'resumed', updated_at = :now, ended_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'resuming'
RETURNING id;

-- name: ready_due_runs
-- Move due runs to the ready queue.
-- Differs: rows that another transaction has locked are skipped until the next pass.
WITH picked AS MATERIALIZED (
       SELECT id FROM runs
        WHERE status = 'queued' AND queue = 'later' AND due_at <= :now
        ORDER BY due_at, id LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE runs SET queue = 'ready', updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND status = 'queued' AND queue <> 'ready'
RETURNING id;

-- name: insert_run_many
-- Many new runs; existing ids change nothing.
-- Differs: one statement for all rows is five times as fast here as one statement for each.
INSERT INTO runs
SELECT * FROM unnest(
         CAST(:id AS text[]), CAST(:task_id AS text[]), CAST(:task_name AS text[]), CAST(:number AS bigint[]),
         CAST(:resumes_run_id AS text[]), CAST(:checkpoint_id AS text[]), CAST(:seed AS bytea[]),
         CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]), CAST(:status AS text[]),
         CAST(:priority AS bigint[]), CAST(:due_at AS bigint[]), CAST(:queue AS text[]),
         CAST(:is_alone AS bigint[]), CAST(:idle_attempts AS bigint[]), CAST(:claimed_by AS text[]),
         CAST(:claim_token AS text[]), CAST(:fence AS bigint[]), CAST(:lease_until AS bigint[]),
         CAST(:beat_at AS bigint[]), CAST(:waits_on AS text[]), CAST(:failure AS bytea[]),
         CAST(:updated_at AS bigint[]), CAST(:started_at AS bigint[]), CAST(:ended_at AS bigint[]))
ON CONFLICT (id) DO NOTHING;
