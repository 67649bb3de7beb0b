-- name: save_step
-- A step's result, if the run is still held with this fence; the first result stays.
-- Differs: it returns nothing, because counting the changes costs half as much here as returning a row.
INSERT INTO steps
SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest,
       :arguments
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;
