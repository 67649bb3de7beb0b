-- name: insert_recorded_task
-- The facts of one recorded task; the same task again changes nothing.
INSERT INTO recorded_tasks
VALUES (:task_id, :scope, :source_id, :agent_id, :child_session_key, :reference, :beat_timeout_s, :created_at,
        :digest, :progress_summary, :terminal_summary, :terminal_outcome, :tool_use_count, :last_tool_name,
        :last_event_at, :alive_until, :late_report, :dropped_reports)
ON CONFLICT (task_id) DO NOTHING
RETURNING task_id;

-- name: get_recorded_tasks
-- The facts of these tasks.
SELECT * FROM recorded_tasks WHERE task_id IN :ids[] ORDER BY task_id;

-- name: note_life
-- A sign of life of the work, and what it said of itself. A count that came late never lowers the newer one.
UPDATE recorded_tasks
   SET alive_until = :alive_until, last_event_at = :now,
       progress_summary = COALESCE(:progress_summary, progress_summary),
       last_tool_name = COALESCE(:last_tool_name, last_tool_name),
       tool_use_count = CASE WHEN tool_use_count < :tool_use_count THEN :tool_use_count ELSE tool_use_count END
 WHERE task_id = :task_id
RETURNING task_id;

-- name: note_end_of_recorded
-- The work has ended; no sign of life is expected any more.
UPDATE recorded_tasks
   SET alive_until = NULL, last_event_at = :now, terminal_summary = :terminal_summary,
       terminal_outcome = :terminal_outcome
 WHERE task_id = :task_id
RETURNING task_id;

-- name: keep_late_report
-- A report that came after the end of a run and disagrees with it.
UPDATE recorded_tasks
   SET late_report = :late_report, last_event_at = :now
 WHERE task_id = :task_id
RETURNING task_id;

-- name: note_dropped_reports
-- How many reports the ledger did not get, from the beginning; a count that came late never lowers it.
UPDATE recorded_tasks
   SET dropped_reports = :total
 WHERE task_id = :task_id AND dropped_reports < :total
RETURNING task_id;

-- name: recorded_tasks_with_late_reports
-- Recorded work whose producer said something else after the end. The index recorded_tasks_late holds only these.
SELECT * FROM recorded_tasks WHERE late_report IS NOT NULL ORDER BY task_id DESC LIMIT :limit;

-- name: recorded_tasks_with_drops
-- Recorded work of which reports were dropped. The index recorded_tasks_dropped holds only these.
SELECT * FROM recorded_tasks WHERE dropped_reports > 0 ORDER BY task_id DESC LIMIT :limit;

-- name: silent_recorded_tasks
-- Recorded work whose last sign of life no longer counts, longest silent first.
SELECT * FROM recorded_tasks
 WHERE alive_until IS NOT NULL AND alive_until <= :now
 ORDER BY alive_until, task_id LIMIT :limit;

-- name: recorded_tasks_of_child
-- The recorded work of one child session.
SELECT * FROM recorded_tasks
 WHERE child_session_key IS NOT NULL AND child_session_key = :child_session_key
 ORDER BY task_id LIMIT :limit;

-- name: page_of_recorded_tasks_of_agent
-- The tasks of recorded work that one agent does, newest first.
SELECT tasks.* FROM recorded_tasks JOIN tasks ON tasks.id = recorded_tasks.task_id
 WHERE agent_id IS NOT NULL AND agent_id = :agent AND task_id < :before AND task_id > :after
 ORDER BY task_id DESC LIMIT :limit;

-- name: page_of_recorded_tasks_of_child
-- The tasks of recorded work that is done in one child session, newest first.
SELECT tasks.* FROM recorded_tasks JOIN tasks ON tasks.id = recorded_tasks.task_id
 WHERE child_session_key IS NOT NULL AND child_session_key = :session_key
   AND task_id < :before AND task_id > :after
 ORDER BY task_id DESC LIMIT :limit;

-- name: delete_recorded_of_tasks
-- Retention.
DELETE FROM recorded_tasks WHERE task_id IN :ids[];
