-- Checkpoints of campaigns. Those of runs stand in `checkpoints`.
-- A digest covers the columns above it; what changes during a record's life stands below it.
-- Their numbers go up by one in each campaign, so that of two processes that save one at the same time, one wins.
-- A recoverable one has rows in campaign_checkpoint_places.
CREATE TABLE campaign_checkpoints (
  id          TEXT PRIMARY KEY,
  campaign_id TEXT NOT NULL,
  number      INTEGER NOT NULL,
  kind        TEXT NOT NULL CHECK (kind IN ('batch', 'milestone', 'periodic')),
  name        TEXT NOT NULL,
  phase       INTEGER,
  batch       INTEGER,
  items       INTEGER NOT NULL,
  recoverable INTEGER NOT NULL CHECK (recoverable IN (0, 1)),
  summary     BLOB NOT NULL,
  created_at  INTEGER NOT NULL,
  digest      BLOB NOT NULL,
  UNIQUE (campaign_id, number)
) STRICT;
CREATE INDEX campaign_checkpoints_by_kind ON campaign_checkpoints (campaign_id, kind, number);
CREATE INDEX campaign_checkpoints_by_time ON campaign_checkpoints (created_at, id);

-- Which items were done in one phase: one bit for each place, compressed.
CREATE TABLE campaign_checkpoint_places (
  checkpoint_id TEXT NOT NULL,
  phase         INTEGER NOT NULL,
  places        BLOB NOT NULL,
  digest        BLOB NOT NULL,
  PRIMARY KEY (checkpoint_id, phase)
) STRICT, WITHOUT ROWID;

-- The last checkpoint of each campaign, what was saved by then, and why another one is wanted, if one is.
CREATE TABLE campaign_saves (
  campaign_id   TEXT PRIMARY KEY,
  number        INTEGER NOT NULL,
  checkpoint_id TEXT,
  marks         BLOB NOT NULL,
  wanted        TEXT,
  updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX campaign_saves_wanted ON campaign_saves (campaign_id) WHERE wanted IS NOT NULL;

-- Restores of campaigns. One that has not ended keeps its campaign paused, and goes on after its place.
CREATE TABLE campaign_restores (
  campaign_id   TEXT NOT NULL,
  number        INTEGER NOT NULL,
  checkpoint_id TEXT NOT NULL,
  effects       TEXT NOT NULL CHECK (effects IN ('refuse', 'keep', 'compensate', 'acknowledge')),
  goes_on       INTEGER NOT NULL CHECK (goes_on IN (0, 1)),
  phase         INTEGER NOT NULL,
  place         INTEGER NOT NULL,
  undone        INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  ended_at      INTEGER,
  PRIMARY KEY (campaign_id, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX campaign_restores_open ON campaign_restores (campaign_id) WHERE ended_at IS NULL;

-- Items that a restore made pending again, with the task whose effects their next task finds as done.
CREATE TABLE campaign_kept_effects (
  campaign_id TEXT NOT NULL,
  phase       INTEGER NOT NULL,
  place       INTEGER NOT NULL,
  task_id     TEXT NOT NULL,
  PRIMARY KEY (campaign_id, phase, place)
) STRICT, WITHOUT ROWID;
-- Retention asks whether a task is one of them.
CREATE INDEX campaign_kept_effects_by_task ON campaign_kept_effects (task_id);
