-- What lists of tasks are filtered by, so that a page never depends on the length of the history.
-- None of these columns changes during a task's life: an index costs one entry when the task is created.
CREATE INDEX tasks_by_name ON tasks (name, id);
CREATE INDEX tasks_by_runtime ON tasks (runtime, id);
CREATE INDEX tasks_by_session ON tasks (session_key, id) WHERE session_key IS NOT NULL;
CREATE INDEX tasks_by_key ON tasks (dedup_key, id) WHERE dedup_key IS NOT NULL;
-- The agent of a session key, which is agent:<agent>:<name>.
CREATE INDEX tasks_by_agent ON tasks (substr(session_key, 7, instr(substr(session_key, 7), ':') - 1), id)
  WHERE session_key >= 'agent:' AND session_key < 'agent;';
CREATE INDEX recorded_tasks_by_agent ON recorded_tasks (agent_id, task_id) WHERE agent_id IS NOT NULL;
