-- Work that others execute and Holdfast records: facts that no other task has, apart from the rows that workers read.
-- A digest covers the columns above it; what changes during a record's life stands below it.
CREATE TABLE recorded_tasks (
  task_id           TEXT PRIMARY KEY REFERENCES tasks (id),
  scope             TEXT NOT NULL CHECK (scope IN ('session', 'system')),
  source_id         TEXT,
  agent_id          TEXT,
  child_session_key TEXT,
  reference         TEXT,
  beat_timeout_s    INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  digest            BLOB NOT NULL,
  progress_summary  TEXT,
  terminal_summary  TEXT,
  terminal_outcome  TEXT CHECK (terminal_outcome IN ('succeeded', 'blocked')),
  tool_use_count    INTEGER NOT NULL,
  last_tool_name    TEXT,
  last_event_at     INTEGER NOT NULL,
  alive_until       INTEGER
) STRICT;
CREATE INDEX recorded_tasks_by_child ON recorded_tasks (child_session_key, task_id) WHERE child_session_key IS NOT NULL;
CREATE INDEX recorded_tasks_alive ON recorded_tasks (alive_until, task_id) WHERE alive_until IS NOT NULL;
