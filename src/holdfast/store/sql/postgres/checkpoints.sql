-- name: lock_checkpoint
-- One checkpoint, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM run_checkpoints WHERE id = :id FOR UPDATE;

-- name: open_checkpoint_of_run
-- The checkpoint that pauses a run now, if there is one.
-- Differs: it repeats the condition of its partial index, see the schema.
SELECT * FROM run_checkpoints
 WHERE run_id = :run_id AND status IN ('paused_for_restart', 'resuming') AND resumed_run_id IS NULL;

-- name: lock_resuming
-- Those of these checkpoints that are still being resumed, locked until this transaction ends.
-- Differs: the rows are locked, in the order of their ids, so that two sweeps cannot deadlock.
SELECT * FROM run_checkpoints WHERE id IN :ids[] AND status = 'resuming' ORDER BY id FOR UPDATE;

-- name: hold_checkpoints
-- Those of these checkpoints that this resumer still holds, locked until the transaction ends.
-- Differs: the rows are locked, in the order of their ids; exclusively, because a shared lock would be upgraded later.
SELECT id FROM run_checkpoints WHERE id IN :ids[] AND token = :token AND status = 'resuming' ORDER BY id FOR UPDATE;

-- name: claim_checkpoints
-- Claim the most urgent paused checkpoints, except those that wait for a wake or until this boot has ended.
-- Differs: rows that another resumer is claiming are skipped; leases follow the database's clock.
-- moves: checkpoint paused_for_restart -> resuming
WITH picked AS MATERIALIZED (
       SELECT id FROM run_checkpoints
        WHERE status = 'paused_for_restart' AND resumed_run_id IS NULL AND wake_id IS NULL
          AND (claimed_by IS NULL OR claimed_by <> :boot_id)
        ORDER BY priority, created_at, id
        LIMIT :limit
          FOR NO KEY UPDATE SKIP LOCKED
     )
UPDATE run_checkpoints
   SET status = 'resuming', token = :token, claimed_by = :boot_id,
       lease_until = (SELECT holdfast_now()) + :lease, attempts = attempts + 1, updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND status = 'paused_for_restart'
RETURNING *;

-- name: claim_checkpoint
-- Claim one paused checkpoint, unless it waits for a wake or until this boot has ended.
-- Differs: leases follow the database's clock.
-- moves: checkpoint paused_for_restart -> resuming
UPDATE run_checkpoints
   SET status = 'resuming', token = :token, claimed_by = :boot_id,
       lease_until = (SELECT holdfast_now()) + :lease, attempts = attempts + 1, updated_at = :now
 WHERE id = :id AND status = 'paused_for_restart' AND wake_id IS NULL AND (claimed_by IS NULL OR claimed_by <> :boot_id)
RETURNING *;

-- name: return_checkpoints
-- Their resumer died or let the lease lapse before it created the follow-up runs.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
-- moves: checkpoint resuming -> paused_for_restart
WITH held AS MATERIALIZED (
       SELECT id FROM run_checkpoints WHERE id IN :ids[] AND status = 'resuming' ORDER BY id FOR NO KEY UPDATE
     )
UPDATE run_checkpoints
   SET status = 'paused_for_restart', token = NULL, claimed_by = NULL, lease_until = NULL, updated_at = :now
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'resuming'
RETURNING id, run_id, task_id;

-- name: renew_resumes
-- A resumer that needs more time renews its leases.
-- Differs: leases follow the database's clock, read once.
UPDATE run_checkpoints SET lease_until = (SELECT holdfast_now()) + CAST(:lease AS bigint)
 WHERE id IN :ids[] AND token = :token AND status = 'resuming'
RETURNING id;

-- name: lapsed_resumes
-- Checkpoints whose resumer let the lease lapse.
-- Differs: leases follow the database's clock, read once.
SELECT * FROM run_checkpoints
 WHERE status = 'resuming' AND lease_until <= (SELECT holdfast_now())
 ORDER BY priority, created_at, id LIMIT :limit;

-- name: insert_checkpoint_many
-- Many new checkpoints; existing ids change nothing.
-- Only: one statement for all rows is five times as fast here as one statement for each.
INSERT INTO run_checkpoints
SELECT * FROM unnest(
         CAST(:id AS text[]), CAST(:task_id AS text[]), CAST(:run_id AS text[]), CAST(:kind AS text[]),
         CAST(:reason AS text[]), CAST(:schema_version AS bigint[]), CAST(:document AS bytea[]),
         CAST(:retry_of AS text[]), CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]),
         CAST(:status AS text[]), CAST(:priority AS bigint[]), CAST(:token AS text[]),
         CAST(:claimed_by AS text[]), CAST(:lease_until AS bigint[]), CAST(:attempts AS bigint[]),
         CAST(:resumed_run_id AS text[]), CAST(:diagnostic AS bytea[]), CAST(:updated_at AS bigint[]),
         CAST(:wake_id AS text[]))
ON CONFLICT (id) DO NOTHING;

-- name: set_checkpoint_resumed_many
-- The follow-up runs exist; the resumer still holds the checkpoints.
-- Only: one statement for all rows is five times as fast here as one statement for each.
-- moves: checkpoint resuming -> resumed
UPDATE run_checkpoints
   SET status = 'resumed', resumed_run_id = given.resumed_run_id, diagnostic = given.diagnostic,
       lease_until = NULL, updated_at = given.now
  FROM unnest(
         CAST(:id AS text[]), CAST(:resumed_run_id AS text[]), CAST(:diagnostic AS bytea[]),
         CAST(:token AS text[]), CAST(:now AS bigint[])
       ) AS given (id, resumed_run_id, diagnostic, token, now)
 WHERE run_checkpoints.id = given.id AND run_checkpoints.token = given.token AND status = 'resuming'
RETURNING run_checkpoints.id;
