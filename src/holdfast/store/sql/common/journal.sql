-- name: save_step
-- A step's result, if the run is still held with this fence; the first result stays.
INSERT INTO steps
SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING
RETURNING seq;

-- name: get_step
-- One step by its key.
SELECT * FROM steps
 WHERE task_id = :task_id AND scope = :scope AND name = :name AND occurrence = :occurrence;

-- name: steps_of_task
-- The journal of a task in the order it was written.
SELECT * FROM steps WHERE task_id = :task_id ORDER BY seq, scope, name, occurrence LIMIT :limit;

-- name: journal_heads
-- For each task: how many steps, how many by its newest writer, and which came last.
SELECT task_id, run_id, name, seq FROM steps WHERE task_id IN :ids[] ORDER BY task_id, seq;

-- name: hold_run
-- Whether the run is still held with this fence; keeps it so until the transaction ends.
SELECT 1 FROM runs WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id;

-- name: save_plan
-- The plan of a task as it stands now.
INSERT INTO plans VALUES (:task_id, :run_id, :items, :now, :digest)
ON CONFLICT (task_id) DO UPDATE
   SET run_id = excluded.run_id, items = excluded.items, updated_at = excluded.updated_at, digest = excluded.digest;

-- name: plans_of_tasks
-- The plans of several tasks.
SELECT * FROM plans WHERE task_id IN :ids[] ORDER BY task_id;

-- name: save_artifact
-- What a step left behind; recording it again under its name replaces the record.
INSERT INTO artifacts VALUES (:task_id, :name, :run_id, :body, :now, :digest)
ON CONFLICT (task_id, name) DO UPDATE
   SET run_id = excluded.run_id, body = excluded.body, recorded_at = excluded.recorded_at, digest = excluded.digest;

-- name: artifacts_of_tasks
-- The artifacts of several tasks.
SELECT * FROM artifacts WHERE task_id IN :ids[] ORDER BY task_id, name;

-- name: save_note
-- A decision or a reference; the same place again changes nothing.
INSERT INTO notes VALUES (:task_id, :seq, :run_id, :kind, :text, :now, :digest)
ON CONFLICT (task_id, seq) DO NOTHING
RETURNING seq;

-- name: get_note
-- One note by its place.
SELECT * FROM notes WHERE task_id = :task_id AND seq = :seq;

-- name: notes_of_tasks
-- The notes of several tasks.
SELECT * FROM notes WHERE task_id IN :ids[] ORDER BY task_id, seq;

-- name: delete_steps_of_tasks
-- Retention.
DELETE FROM steps WHERE task_id IN :ids[];

-- name: delete_plans_of_tasks
-- Retention.
DELETE FROM plans WHERE task_id IN :ids[];

-- name: delete_artifacts_of_tasks
-- Retention.
DELETE FROM artifacts WHERE task_id IN :ids[];

-- name: delete_notes_of_tasks
-- Retention.
DELETE FROM notes WHERE task_id IN :ids[];
