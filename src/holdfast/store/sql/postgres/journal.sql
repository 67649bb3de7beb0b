-- name: save_step
-- A step's result, if the run is still held with this fence; the first result stays.
-- Differs: the run is locked, which waits for a transaction that raises its fence.
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
INSERT INTO steps
SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest,
       :arguments
  FROM held
 WHERE fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;

-- name: save_steps
-- Many steps of many runs, each under the fence of its own run; returns those that were saved now.
-- Only: SQLite has no server to ask, so it runs save_step for each. Here they are passed as lists, one for each column.
-- The runs are locked in the order of their ids, which waits for transactions that raise their fences, and the steps
-- are inserted in the order of their keys: no deadlocks.
WITH given AS MATERIALIZED (
       SELECT * FROM unnest(
         CAST(:task_id AS text[]), CAST(:scope AS text[]), CAST(:name AS text[]), CAST(:occurrence AS text[]),
         CAST(:run_id AS text[]), CAST(:seq AS bigint[]), CAST(:input_digest AS bytea[]),
         CAST(:result AS bytea[]), CAST(:started_at AS bigint[]), CAST(:ended_at AS bigint[]),
         CAST(:digest AS bytea[]), CAST(:arguments AS bytea[]), CAST(:fence AS bigint[])
       ) AS given (task_id, scope, name, occurrence, run_id, seq, input_digest, result, started_at, ended_at,
                   digest, arguments, fence)
     ),
     held AS MATERIALIZED (
       SELECT id, task_id, fence FROM runs
        WHERE id = ANY (CAST(:run_id AS text[])) AND status = 'running'
        ORDER BY id
          FOR SHARE
     )
INSERT INTO steps
SELECT given.task_id, given.scope, given.name, given.occurrence, given.run_id, given.seq, given.input_digest,
       given.result, given.started_at, given.ended_at, given.digest, given.arguments
  FROM given JOIN held
    ON held.id = given.run_id AND held.fence = given.fence AND held.task_id = given.task_id
 ORDER BY given.task_id, given.scope, given.name, given.occurrence
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING
RETURNING task_id, scope, name, occurrence, digest;

-- name: hold_run
-- Whether the run is still held with this fence; if so, it is locked until the transaction ends.
-- Differs: the row gets a shared lock, so that its fence cannot be raised before this transaction commits.
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
SELECT 1 FROM held WHERE fence = :fence AND status = 'running' AND task_id = :task_id;
