-- Campaigns: items go through phases, in batches by priority; each item-phase is a task once it has started.
-- A digest covers the columns above it; what changes during a record's life stands below it.
-- Which campaign a task belongs to; the row of its item-phase is the truth, this only leads there quickly.
ALTER TABLE tasks ADD COLUMN campaign_id TEXT COLLATE "C";
CREATE INDEX tasks_by_campaign ON tasks (campaign_id, id) WHERE campaign_id IS NOT NULL;

CREATE TABLE campaigns (
  id           TEXT COLLATE "C" PRIMARY KEY,
  name         TEXT COLLATE "C" NOT NULL UNIQUE,
  owner        TEXT COLLATE "C" NOT NULL,
  spec         BYTEA NOT NULL,
  created_at   BIGINT NOT NULL,
  digest       BYTEA NOT NULL,
  status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('draft', 'running', 'paused', 'done', 'failed')),
  items        BIGINT NOT NULL,
  batches      BIGINT NOT NULL,
  open_batches BYTEA NOT NULL,
  reason       TEXT COLLATE "C",
  updated_at   BIGINT NOT NULL,
  started_at   BIGINT,
  ended_at     BIGINT,
  ran_since    BIGINT
);
CREATE INDEX campaigns_by_status ON campaigns (status, id);

-- The phases of each campaign, for views: its spec is the truth.
CREATE TABLE campaign_phases (
  campaign_id TEXT COLLATE "C" NOT NULL,
  number      BIGINT NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  role        TEXT COLLATE "C" NOT NULL,
  task        TEXT COLLATE "C" NOT NULL,
  stages      TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (campaign_id, number)
);

-- One unit of a campaign. Its place is its number in the order in which items were added.
CREATE TABLE campaign_items (
  campaign_id TEXT COLLATE "C" NOT NULL,
  place       BIGINT NOT NULL,
  item_id     TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  priority    TEXT COLLATE "C" NOT NULL,
  category    TEXT COLLATE "C",
  batch       BIGINT NOT NULL,
  contents    BYTEA NOT NULL,
  created_at  BIGINT NOT NULL,
  digest      BYTEA NOT NULL,
  PRIMARY KEY (campaign_id, place)
);
CREATE UNIQUE INDEX campaign_items_by_id ON campaign_items (campaign_id, item_id);
CREATE INDEX campaign_items_by_batch ON campaign_items (campaign_id, batch, place);

-- One item in one phase. `unmet` counts the phases that must be done before; `summary` is a small plain document of
-- the result, and `note` says why it was started anew. From `stage` on: how far its task is, kept as the task goes on.
-- `goes_on` is 1 if it was paused with its campaign, and goes on with it.
CREATE TABLE item_phases (
  campaign_id TEXT COLLATE "C" NOT NULL,
  phase       BIGINT NOT NULL,
  place       BIGINT NOT NULL,
  priority    TEXT COLLATE "C" NOT NULL,
  category    TEXT COLLATE "C",
  batch       BIGINT NOT NULL,
  status      TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'running', 'paused', 'done', 'failed')),
  unmet       BIGINT NOT NULL,
  attempt     BIGINT NOT NULL,
  task_id     TEXT COLLATE "C",
  summary     BYTEA,
  error       TEXT COLLATE "C",
  note        TEXT COLLATE "C",
  updated_at  BIGINT NOT NULL,
  started_at  BIGINT,
  ended_at    BIGINT,
  stage          TEXT COLLATE "C",
  percent        BIGINT NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
  subtask        TEXT COLLATE "C",
  items_total    BIGINT,
  items_done     BIGINT,
  items_failed   BIGINT,
  last_action    TEXT COLLATE "C",
  last_action_at BIGINT,
  goes_on        BIGINT NOT NULL DEFAULT 0 CHECK (goes_on IN (0, 1)),
  PRIMARY KEY (campaign_id, phase, place)
);
CREATE UNIQUE INDEX item_phases_by_task ON item_phases (task_id) WHERE task_id IS NOT NULL;
-- The next ones to start, without a look at those that are done or wait for another phase.
CREATE INDEX item_phases_startable ON item_phases (campaign_id, phase, priority, batch, place)
  WHERE status = 'pending' AND unmet = 0;
CREATE INDEX item_phases_by_status ON item_phases (campaign_id, phase, status, place);
CREATE INDEX item_phases_going_on ON item_phases (campaign_id, phase, place) WHERE goes_on = 1;
CREATE INDEX item_phases_by_change ON item_phases (campaign_id, updated_at);

-- Limits: an item-phase starts when it has got a free slot of each scope ('campaign', 'phase:0', 'host:name').
CREATE TABLE campaign_slots (
  campaign_id TEXT COLLATE "C" NOT NULL,
  scope       TEXT COLLATE "C" NOT NULL,
  number      BIGINT NOT NULL,
  task_id     TEXT COLLATE "C",
  PRIMARY KEY (campaign_id, scope, number)
);
CREATE INDEX campaign_slots_free ON campaign_slots (campaign_id, scope, number) WHERE task_id IS NULL;
CREATE INDEX campaign_slots_by_task ON campaign_slots (task_id) WHERE task_id IS NOT NULL;
