-- name: put_step
-- A step's result without a guard, for a write that has checked the claim; the first result stays.
INSERT INTO steps
VALUES (:task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at, :digest, :arguments)
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING
RETURNING seq;

-- name: delete_step
-- Delete a step whose result no longer belongs to its key.
DELETE FROM steps
 WHERE task_id = :task_id AND scope = :scope AND name = :name AND occurrence = :occurrence;

-- name: get_step
-- One step by its key.
SELECT * FROM steps
 WHERE task_id = :task_id AND scope = :scope AND name = :name AND occurrence = :occurrence;

-- name: steps_of_task
-- The journal of a task in the order it was written.
SELECT * FROM steps WHERE task_id = :task_id ORDER BY seq, scope, name, occurrence LIMIT :limit;

-- name: steps_from
-- The journal of a task from a number on, in the order it was written, for display.
SELECT * FROM steps WHERE task_id = :task_id AND seq >= :seq ORDER BY seq, scope, name, occurrence LIMIT :limit;

-- name: steps_of_scope_from
-- The same for the steps of a scope and of all scopes inside it.
SELECT * FROM steps
 WHERE task_id = :task_id AND seq >= :seq
   AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low)
 ORDER BY seq, scope, name, occurrence LIMIT :limit;

-- name: newest_steps_of_task
-- The end of a task's journal, newest first, for display.
SELECT * FROM steps WHERE task_id = :task_id ORDER BY seq DESC, scope DESC, name DESC, occurrence DESC LIMIT :limit;

-- name: steps_of_tasks
-- The journals of several tasks, each in the order it was written.
SELECT * FROM steps WHERE task_id IN :ids[] ORDER BY task_id, seq, scope, name, occurrence;

-- name: journal_heads
-- How many steps each run of several tasks has saved: those in the journal, and those of finished turns.
SELECT task_id, run_id, COUNT(*) FROM steps
 WHERE task_id IN :ids[] GROUP BY task_id, run_id
 UNION ALL
SELECT task_id, run_id, COUNT(*) FROM effects
 WHERE task_id IN :ids[] AND in_journal = 1 AND status IN ('done', 'confirmed')
   AND NOT EXISTS (SELECT 1 FROM steps
                    WHERE steps.task_id = effects.task_id AND steps.scope = effects.scope
                      AND steps.name = effects.name AND steps.occurrence = effects.occurrence)
 GROUP BY task_id, run_id
 UNION ALL
SELECT task_id, run_id, CAST(SUM(step_count) AS BIGINT) FROM turns
 WHERE task_id IN :ids[] GROUP BY task_id, run_id;

-- name: last_steps
-- The last step, the last effect and the last step of the newest turn of each task, with their end times.
SELECT task_id, part, name, ended_at
  FROM (SELECT task_id, 0 AS part, name, ended_at,
               ROW_NUMBER() OVER (PARTITION BY task_id ORDER BY seq DESC, scope DESC, name DESC, occurrence DESC)
                 AS place
          FROM steps WHERE task_id IN :ids[]
         UNION ALL
        SELECT task_id, 1 AS part, name, updated_at AS ended_at,
               ROW_NUMBER() OVER (PARTITION BY task_id
                                      ORDER BY updated_at DESC, scope DESC, name DESC, occurrence DESC) AS place
          FROM effects WHERE task_id IN :ids[] AND in_journal = 1 AND status IN ('done', 'confirmed')
         UNION ALL
        SELECT task_id, 2 AS part, last_step AS name, ended_at,
               ROW_NUMBER() OVER (PARTITION BY task_id ORDER BY ended_at DESC, loop DESC, seq DESC) AS place
          FROM turns WHERE task_id IN :ids[] AND step_count > 0) AS all_parts
 WHERE place = 1
 ORDER BY task_id, part;

-- name: hold_run
-- Whether the run is still held with this fence; if so, it is locked until the transaction ends.
SELECT 1 FROM runs WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id;

-- name: save_plan
-- The current plan of a task.
INSERT INTO plans VALUES (:task_id, :run_id, :items, :now, :digest)
ON CONFLICT (task_id) DO UPDATE
   SET run_id = excluded.run_id, items = excluded.items, updated_at = excluded.updated_at, digest = excluded.digest;

-- name: plans_of_tasks
-- The plans of several tasks.
SELECT * FROM plans WHERE task_id IN :ids[] ORDER BY task_id;

-- name: save_artifact
-- An artifact of a step; recording it again under its name replaces the record.
INSERT INTO artifacts VALUES (:task_id, :name, :run_id, :body, :now, :digest)
ON CONFLICT (task_id, name) DO UPDATE
   SET run_id = excluded.run_id, body = excluded.body, recorded_at = excluded.recorded_at, digest = excluded.digest;

-- name: artifacts_of_tasks
-- The artifacts of several tasks.
SELECT * FROM artifacts WHERE task_id IN :ids[] ORDER BY task_id, name;

-- name: save_note
-- A decision or a reference; the same number again changes nothing.
INSERT INTO notes VALUES (:task_id, :seq, :run_id, :kind, :text, :now, :digest)
ON CONFLICT (task_id, seq) DO NOTHING
RETURNING seq;

-- name: get_note
-- One note by its number.
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

-- name: task_has_progress
-- Whether the task has saved anything: a step, an effect that was at least begun, a turn, a list or a value.
SELECT 1
 WHERE EXISTS (SELECT 1 FROM steps WHERE task_id = :task_id)
    OR EXISTS (SELECT 1 FROM effects WHERE task_id = :task_id)
    OR EXISTS (SELECT 1 FROM turns WHERE task_id = :task_id)
    OR EXISTS (SELECT 1 FROM list_deltas WHERE task_id = :task_id)
    OR EXISTS (SELECT 1 FROM durable_values WHERE task_id = :task_id);
