-- Work that others execute and Holdfast records: facts that no other task has, apart from the rows that workers read.
-- A digest covers the columns above it; what changes during a record's life stands below it.
CREATE TABLE recorded_tasks (
  task_id           TEXT COLLATE "C" PRIMARY KEY REFERENCES tasks (id),
  scope             TEXT COLLATE "C" NOT NULL CHECK (scope IN ('session', 'system')),
  source_id         TEXT COLLATE "C",
  agent_id          TEXT COLLATE "C",
  child_session_key TEXT COLLATE "C",
  reference         TEXT COLLATE "C",
  beat_timeout_s    BIGINT NOT NULL,
  created_at        BIGINT NOT NULL,
  digest            BYTEA NOT NULL,
  progress_summary  TEXT COLLATE "C",
  terminal_summary  TEXT COLLATE "C",
  terminal_outcome  TEXT COLLATE "C" CHECK (terminal_outcome IN ('succeeded', 'blocked')),
  tool_use_count    BIGINT NOT NULL,
  last_tool_name    TEXT COLLATE "C",
  last_event_at     BIGINT NOT NULL,
  alive_until       BIGINT
);
CREATE INDEX recorded_tasks_by_child ON recorded_tasks (child_session_key, task_id) WHERE child_session_key IS NOT NULL;
CREATE INDEX recorded_tasks_alive ON recorded_tasks (alive_until, task_id) WHERE alive_until IS NOT NULL;
