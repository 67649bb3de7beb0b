-- Campaigns: items go through phases, in batches by priority; each item-phase is a task once it has started.
-- A digest covers the columns above it; what changes during a record's life stands below it.
-- Which campaign a task belongs to; the row of its item-phase is the truth, this only leads there quickly.
ALTER TABLE tasks ADD COLUMN campaign_id TEXT;
CREATE INDEX tasks_by_campaign ON tasks (campaign_id, id) WHERE campaign_id IS NOT NULL;

CREATE TABLE campaigns (
  id           TEXT PRIMARY KEY,
  name         TEXT NOT NULL UNIQUE,
  owner        TEXT NOT NULL,
  spec         BLOB NOT NULL,
  created_at   INTEGER NOT NULL,
  digest       BLOB NOT NULL,
  status       TEXT NOT NULL CHECK (status IN ('draft', 'running', 'paused', 'done', 'failed')),
  items        INTEGER NOT NULL,
  batches      INTEGER NOT NULL,
  open_batches BLOB NOT NULL,
  reason       TEXT,
  updated_at   INTEGER NOT NULL,
  started_at   INTEGER,
  ended_at     INTEGER,
  ran_since    INTEGER
) STRICT;
CREATE INDEX campaigns_by_status ON campaigns (status, id);

-- The phases of each campaign, for views: its spec is the truth.
CREATE TABLE campaign_phases (
  campaign_id TEXT NOT NULL,
  number      INTEGER NOT NULL,
  name        TEXT NOT NULL,
  role        TEXT NOT NULL,
  task        TEXT NOT NULL,
  stages      TEXT NOT NULL,
  PRIMARY KEY (campaign_id, number)
) STRICT, WITHOUT ROWID;

-- One unit of a campaign. Its place is its number in the order in which items were added.
CREATE TABLE campaign_items (
  campaign_id TEXT NOT NULL,
  place       INTEGER NOT NULL,
  item_id     TEXT NOT NULL,
  name        TEXT NOT NULL,
  priority    TEXT NOT NULL,
  category    TEXT,
  batch       INTEGER NOT NULL,
  contents    BLOB NOT NULL,
  created_at  INTEGER NOT NULL,
  digest      BLOB NOT NULL,
  PRIMARY KEY (campaign_id, place)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX campaign_items_by_id ON campaign_items (campaign_id, item_id);
CREATE INDEX campaign_items_by_batch ON campaign_items (campaign_id, batch, place);

-- One item in one phase. `unmet` counts the phases that must be done before; `summary` is a small plain document of
-- the result, and `note` says why it was started anew. From `stage` on: how far its task is, kept as the task goes on.
-- `goes_on` is 1 if it was paused with its campaign, and goes on with it.
CREATE TABLE item_phases (
  campaign_id TEXT NOT NULL,
  phase       INTEGER NOT NULL,
  place       INTEGER NOT NULL,
  priority    TEXT NOT NULL,
  category    TEXT,
  batch       INTEGER NOT NULL,
  status      TEXT NOT NULL CHECK (status IN ('pending', 'running', 'paused', 'done', 'failed')),
  unmet       INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  task_id     TEXT,
  summary     BLOB,
  error       TEXT,
  note        TEXT,
  updated_at  INTEGER NOT NULL,
  started_at  INTEGER,
  ended_at    INTEGER,
  stage          TEXT,
  percent        INTEGER NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
  subtask        TEXT,
  items_total    INTEGER,
  items_done     INTEGER,
  items_failed   INTEGER,
  last_action    TEXT,
  last_action_at INTEGER,
  goes_on        INTEGER NOT NULL DEFAULT 0 CHECK (goes_on IN (0, 1)),
  PRIMARY KEY (campaign_id, phase, place)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX item_phases_by_task ON item_phases (task_id) WHERE task_id IS NOT NULL;
-- The next ones to start, without a look at those that are done or wait for another phase.
CREATE INDEX item_phases_startable ON item_phases (campaign_id, phase, priority, batch, place)
  WHERE status = 'pending' AND unmet = 0;
CREATE INDEX item_phases_by_status ON item_phases (campaign_id, phase, status, place);
CREATE INDEX item_phases_going_on ON item_phases (campaign_id, phase, place) WHERE goes_on = 1;
CREATE INDEX item_phases_by_change ON item_phases (campaign_id, updated_at);

-- Limits: an item-phase starts when it has got a free slot of each scope ('campaign', 'phase:0', 'host:name').
CREATE TABLE campaign_slots (
  campaign_id TEXT NOT NULL,
  scope       TEXT NOT NULL,
  number      INTEGER NOT NULL,
  task_id     TEXT,
  PRIMARY KEY (campaign_id, scope, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX campaign_slots_free ON campaign_slots (campaign_id, scope, number) WHERE task_id IS NULL;
CREATE INDEX campaign_slots_by_task ON campaign_slots (task_id) WHERE task_id IS NOT NULL;
