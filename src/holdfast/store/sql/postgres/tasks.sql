-- name: lock_task
-- One task, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM tasks WHERE id = :id FOR NO KEY UPDATE;

-- name: lock_running_tasks
-- Those of these tasks that are running, locked until this transaction ends.
-- Differs: they are locked, in the order of their ids, so that two sweeps cannot deadlock.
SELECT id FROM tasks WHERE id IN :ids[] AND status = 'running' ORDER BY id FOR NO KEY UPDATE;

-- name: succeed_task_many
-- Many tasks that succeeded; this transaction has checked that they are running.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: task running -> succeeded
UPDATE tasks
   SET status = 'succeeded', waits_on = NULL, result = given.result, result_digest = given.result_digest,
       failure = NULL, updated_at = given.now, ended_at = given.now, cleanup_after = given.cleanup_after
  FROM unnest(CAST(:id AS text[]), CAST(:result AS bytea[]), CAST(:result_digest AS bytea[]),
              CAST(:now AS bigint[]), CAST(:cleanup_after AS bigint[]))
         AS given (id, result, result_digest, now, cleanup_after)
 WHERE tasks.id = given.id AND tasks.status = 'running';

-- name: move_tasks
-- Move several tasks as their runs moved.
-- Differs: the rows are locked in the order of their ids, so that two sweeps cannot deadlock.
WITH held AS MATERIALIZED (
       SELECT id FROM tasks WHERE id IN :ids[] AND status = :from ORDER BY id FOR NO KEY UPDATE
     )
UPDATE tasks
   SET status = :to, waits_on = :waits_on, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = :from AND status IN :sources[]
RETURNING id;

-- name: save_progress
-- The progress of a running task; only the holder of its run may report it.
-- Differs: the run is locked first, which waits for a transaction that raises its fence.
WITH held AS MATERIALIZED (
       SELECT task_id FROM runs WHERE id = :run_id AND fence = :fence AND status = 'running' FOR SHARE
     )
UPDATE tasks
   SET progress = :progress, updated_at = :now
  FROM held
 WHERE tasks.id = :task_id AND held.task_id = tasks.id
RETURNING tasks.id;

-- name: tasks_to_prune
-- Ended tasks whose retention is over, oldest first; not while an effect, a delivery or their flow is open.
-- Differs: they are locked, so that none is reopened while it is being deleted; locked ones are skipped.
SELECT id, status, owner FROM tasks
 WHERE cleanup_after <= :now
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
   AND (flow_id IS NULL OR (SELECT flows.ended_at IS NULL FROM flows WHERE flows.id = tasks.flow_id) IS NOT TRUE)
 ORDER BY cleanup_after, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;

-- name: lock_tasks_to_prune
-- Those of these tasks that have ended, and of which no effect, no delivery and no flow is open.
-- Differs: they are locked, so that none is reopened while it is being deleted; locked ones are skipped.
SELECT id, status, owner, ended_at FROM tasks
 WHERE id = ANY (CAST(:ids AS text[])) AND ended_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM effects
                    WHERE effects.task_id = tasks.id AND in_journal = 1 AND effects.status IN ('intent', 'unknown'))
   AND NOT EXISTS (SELECT 1 FROM deliveries
                    WHERE deliveries.task_id = tasks.id AND deliveries.status IN ('pending', 'attempting'))
   AND (flow_id IS NULL OR (SELECT flows.ended_at IS NULL FROM flows WHERE flows.id = tasks.flow_id) IS NOT TRUE)
 ORDER BY id
   FOR UPDATE SKIP LOCKED;

-- name: lock_tasks_to_stop_of_flow
-- Live tasks of a flow whose cancel was not requested yet, locked until this transaction ends.
-- Differs: tasks that another transaction holds are skipped: it may be ending one, and will want the flow then.
SELECT id FROM tasks
 WHERE flow_id IS NOT NULL AND flow_id = :flow_id AND ended_at IS NULL AND cancel_requested_at IS NULL
 ORDER BY id LIMIT :limit
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: insert_task_many
-- Many new tasks; existing ids change nothing.
-- Differs: one statement for all rows is five times as fast here as one statement for each.
INSERT INTO tasks
SELECT * FROM unnest(
         CAST(:id AS text[]), CAST(:owner AS text[]), CAST(:runtime AS text[]), CAST(:name AS text[]),
         CAST(:goal AS text[]), CAST(:arguments AS bytea[]), CAST(:origin AS bytea[]),
         CAST(:session_key AS text[]), CAST(:parent_task_id AS text[]), CAST(:flow_id AS text[]),
         CAST(:dedup_key AS text[]), CAST(:notify AS text[]), CAST(:created_at AS bigint[]),
         CAST(:digest AS bytea[]), CAST(:status AS text[]), CAST(:priority AS bigint[]),
         CAST(:waits_on AS text[]), CAST(:progress AS bytea[]), CAST(:result AS bytea[]),
         CAST(:result_digest AS bytea[]), CAST(:failure AS bytea[]), CAST(:cancel_requested_at AS bigint[]),
         CAST(:cancel_reason AS text[]), CAST(:updated_at AS bigint[]), CAST(:started_at AS bigint[]),
         CAST(:ended_at AS bigint[]), CAST(:cleanup_after AS bigint[]), CAST(:campaign_id AS text[]))
ON CONFLICT (id) DO NOTHING;

-- name: page_of_tasks_in_status
-- Those in one status, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE (status, id) < (:status, :before) AND (status, id) > (:status, :after)
 ORDER BY status DESC, id DESC LIMIT :limit;

-- name: oldest_task_in_status
-- The one that was created first.
-- Differs: with `=`, the server may walk through the primary key until it has one; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE (status, id) > (:status, '') AND status <= :status
 ORDER BY status, id LIMIT 1;

-- name: page_of_tasks_of_owner
-- Those of one owner, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE (owner, id) < (:owner, :before) AND (owner, id) > (:owner, :after)
 ORDER BY owner DESC, id DESC LIMIT :limit;

-- name: page_of_tasks_of_name
-- Those with one name, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE (name, id) < (:name, :before) AND (name, id) > (:name, :after)
 ORDER BY name DESC, id DESC LIMIT :limit;

-- name: page_of_tasks_of_runtime
-- Those of one runtime, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE (runtime, id) < (:runtime, :before) AND (runtime, id) > (:runtime, :after)
 ORDER BY runtime DESC, id DESC LIMIT :limit;

-- name: page_of_tasks_of_key
-- Those with one dedup key, newest first: each owner may have one.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE dedup_key IS NOT NULL AND (dedup_key, id) < (:key, :before) AND (dedup_key, id) > (:key, :after)
 ORDER BY dedup_key DESC, id DESC LIMIT :limit;

-- name: page_of_tasks_of_session
-- Those of one session, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT * FROM tasks
 WHERE session_key IS NOT NULL AND (session_key, id) < (:session_key, :before) AND (session_key, id) > (:session_key, :after)
 ORDER BY session_key DESC, id DESC LIMIT :limit;

-- name: page_of_tasks_of_agent
-- Those of the sessions of one agent, newest first.
-- Differs: the index has the agent as this database's own function finds it. With `=`, the server may walk through
-- the primary key instead.
SELECT * FROM tasks
 WHERE session_key >= 'agent:' AND session_key < 'agent;'
   AND (split_part(session_key, ':', 2), id) < (:agent, :before)
   AND (split_part(session_key, ':', 2), id) > (:agent, :after)
 ORDER BY split_part(session_key, ':', 2) DESC, id DESC LIMIT :limit;
