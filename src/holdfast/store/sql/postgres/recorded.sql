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
