-- Schedules, those of the settings and those made at run time, with when each is due next.
-- A digest covers the columns above it; what changes with every firing stands below it.
CREATE TABLE schedules (
  name       TEXT COLLATE "C" PRIMARY KEY,
  source     TEXT COLLATE "C" NOT NULL CHECK (source IN ('settings', 'runtime')),
  owner      TEXT COLLATE "C" NOT NULL,
  task_name  TEXT COLLATE "C" NOT NULL,
  spec       BYTEA NOT NULL,
  revision   BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  is_paused  BIGINT NOT NULL CHECK (is_paused IN (0, 1)),
  is_once    BIGINT NOT NULL CHECK (is_once IN (0, 1)),
  since_at   BIGINT,
  next_at    BIGINT,
  due_at     BIGINT,
  updated_at BIGINT NOT NULL
);
-- A look at what is due reads only what is due.
CREATE INDEX schedules_due ON schedules (due_at, name) WHERE due_at IS NOT NULL;
-- Schedules that a clock which was ahead has moved into the future.
CREATE INDEX schedules_since ON schedules (since_at, name) WHERE since_at IS NOT NULL;
CREATE INDEX schedules_by_owner ON schedules (owner, name);
CREATE INDEX schedules_by_change ON schedules (updated_at, name);
CREATE INDEX schedules_over ON schedules (since_at, name)
  WHERE source = 'runtime' AND is_once = 1 AND due_at IS NULL;

-- Which gateway has a schedule in its settings: its home, and for which target.
CREATE TABLE schedule_declarations (
  name        TEXT COLLATE "C" NOT NULL,
  place       TEXT COLLATE "C" NOT NULL,
  target      TEXT COLLATE "C" NOT NULL,
  declared_at BIGINT NOT NULL,
  seen_at     BIGINT NOT NULL,
  PRIMARY KEY (name, place)
);
CREATE INDEX schedule_declarations_by_place ON schedule_declarations (place, name);

-- Why an occurrence did not run, and what asked for it.
ALTER TABLE firings ADD COLUMN why TEXT COLLATE "C";
ALTER TABLE firings ADD COLUMN cause TEXT COLLATE "C" NOT NULL DEFAULT 'planned' CHECK (cause IN ('planned', 'requested'));
-- When its schedule was made: one that is made later under the same name is another schedule.
ALTER TABLE firings ADD COLUMN schedule_made_at BIGINT;
CREATE INDEX firings_by_time ON firings (created_at, occurrence_at, id);
CREATE INDEX firings_open_by_schedule ON firings (schedule, occurrence_at)
  WHERE status IN ('due', 'running', 'requeued');
-- Firings of tasks and commands that wait until the one before has ended.
CREATE INDEX firings_waiting ON firings (occurrence_at, id)
  WHERE status = 'due' AND message_id IS NULL AND task_id IS NULL;
CREATE INDEX firings_of_tasks ON firings (task_id, id)
  WHERE status IN ('due', 'running', 'requeued') AND message_id IS NULL AND task_id IS NOT NULL;
