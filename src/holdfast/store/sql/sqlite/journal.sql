-- name: save_step
-- A step's result, if the run is still held with this fence; the first result stays.
-- Differs: it returns nothing, because to count the changes is half as dear here as to return a row.
INSERT INTO steps
SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;

-- name: held_runs
-- Of these runs, those that are held, with their fences.
-- Only: SQLite has one writer, so a crowd of steps is guarded once and then inserted row by row.
SELECT id, task_id, fence FROM runs WHERE id IN :ids[] AND status = 'running';

-- name: insert_step
-- One step of a crowd whose runs were found to be held in the same transaction.
-- Only: see held_runs.
INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;
