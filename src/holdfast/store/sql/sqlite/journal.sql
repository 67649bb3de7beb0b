-- name: save_step
-- A step's result, if the run is still held with this fence; the first result stays.
-- Differs: it returns nothing, because counting the changes costs half as much here as returning a row.
INSERT INTO steps
SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest,
       :arguments
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;

-- name: save_steps
-- Many steps of many runs, each under the fence of its own run.
-- Differs: they are passed as one text, so that SQLite does it all without the GIL; bytes are hexadecimal.
INSERT INTO steps
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
       value ->> 5, unhex(value ->> 6), unhex(value ->> 7), value ->> 8,
       value ->> 9, unhex(value ->> 10), unhex(value ->> 11)
  FROM json_each(:rows) CROSS JOIN runs ON runs.id = value ->> 4
 WHERE runs.fence = value ->> 12 AND runs.status = 'running' AND runs.task_id = value ->> 0
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;
