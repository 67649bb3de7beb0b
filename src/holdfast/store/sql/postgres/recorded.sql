-- name: page_of_recorded_tasks_of_agent
-- The tasks of recorded work that one agent does, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT tasks.* FROM recorded_tasks JOIN tasks ON tasks.id = recorded_tasks.task_id
 WHERE agent_id IS NOT NULL AND (agent_id, task_id) < (:agent, :before)
   AND (agent_id, task_id) > (:agent, :after)
 ORDER BY agent_id DESC, task_id DESC LIMIT :limit;

-- name: page_of_recorded_tasks_of_child
-- The tasks of recorded work that is done in one child session, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all tasks.
SELECT tasks.* FROM recorded_tasks JOIN tasks ON tasks.id = recorded_tasks.task_id
 WHERE child_session_key IS NOT NULL AND (child_session_key, task_id) < (:session_key, :before)
   AND (child_session_key, task_id) > (:session_key, :after)
 ORDER BY child_session_key DESC, task_id DESC LIMIT :limit;

-- name: insert_recorded_task_many
-- The facts of many recorded tasks; existing ones change nothing.
-- Only: SQLite runs the statement of one row once for each.
INSERT INTO recorded_tasks
SELECT * FROM unnest(
         CAST(:task_id AS text[]), CAST(:scope AS text[]), CAST(:source_id AS text[]), CAST(:agent_id AS text[]),
         CAST(:child_session_key AS text[]), CAST(:reference AS text[]), CAST(:beat_timeout_s AS bigint[]),
         CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]), CAST(:progress_summary AS text[]),
         CAST(:terminal_summary AS text[]), CAST(:terminal_outcome AS text[]), CAST(:tool_use_count AS bigint[]),
         CAST(:last_tool_name AS text[]), CAST(:last_event_at AS bigint[]), CAST(:alive_until AS bigint[]),
         CAST(:late_report AS bytea[]), CAST(:dropped_reports AS bigint[]))
ON CONFLICT (task_id) DO NOTHING;
