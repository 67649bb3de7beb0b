-- What a flow needs beyond its first columns: its name, its controller or its nodes, its wait, its key, and how many
-- of its tasks are in which state, so that the end of one task costs the same in a flow of any size.
-- A flow of an earlier schema has no name.
ALTER TABLE flows ADD COLUMN name TEXT COLLATE "C";
ALTER TABLE flows ADD COLUMN controller TEXT COLLATE "C";
ALTER TABLE flows ADD COLUMN dedup_key TEXT COLLATE "C";
ALTER TABLE flows ADD COLUMN wait BYTEA;
ALTER TABLE flows ADD COLUMN documents_digest BYTEA;
ALTER TABLE flows ADD COLUMN failure BYTEA;
ALTER TABLE flows ADD COLUMN cancel_reason TEXT COLLATE "C";
ALTER TABLE flows ADD COLUMN change_token TEXT COLLATE "C";
ALTER TABLE flows ADD COLUMN nodes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN live BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN succeeded BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN cancelled BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN lost BIGINT NOT NULL DEFAULT 0;
ALTER TABLE flows ADD COLUMN cleanup_after BIGINT;
CREATE INDEX flows_by_owner_status ON flows (owner, status, id);
CREATE INDEX flows_to_clean ON flows (cleanup_after, id) WHERE cleanup_after IS NOT NULL;
-- Live flows whose cancel was requested: the sweep looks whether each of their tasks was asked to stop.
CREATE INDEX flows_to_stop ON flows (id) WHERE cancel_requested_at IS NOT NULL AND ended_at IS NULL;

-- One node of a flow's definition. `place` is its number in the definition, with leading zeros; `plan` has its task,
-- its arguments, what it needs and what needs it; `unmet` counts the needs that have not succeeded yet.
CREATE TABLE flow_nodes (
  flow_id    TEXT COLLATE "C" NOT NULL,
  place      TEXT COLLATE "C" NOT NULL,
  node_id    TEXT COLLATE "C" NOT NULL,
  plan       BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  status     TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
  unmet      BIGINT NOT NULL,
  task_id    TEXT COLLATE "C",
  failure    BYTEA,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (flow_id, place)
);
CREATE UNIQUE INDEX flow_nodes_by_task ON flow_nodes (task_id) WHERE task_id IS NOT NULL;
-- What an operator can retry.
CREATE INDEX flow_nodes_failed ON flow_nodes (flow_id, place) WHERE status IN ('failed', 'cancelled');

-- The dedup keys of flows. Like those of tasks they outlive their flow.
CREATE TABLE flow_keys (
  owner             TEXT COLLATE "C" NOT NULL,
  key               TEXT COLLATE "C" NOT NULL,
  flow_id           TEXT COLLATE "C" NOT NULL,
  definition_digest BYTEA NOT NULL,
  created_at        BIGINT NOT NULL,
  ended_as          TEXT COLLATE "C",
  expires_at        BIGINT,
  PRIMARY KEY (owner, key)
);
CREATE INDEX flow_keys_by_flow ON flow_keys (flow_id);
CREATE INDEX flow_keys_expiring ON flow_keys (expires_at) WHERE expires_at IS NOT NULL;

-- Live tasks of a flow whose cancel was not requested yet.
CREATE INDEX tasks_to_stop_of_flow ON tasks (flow_id, id)
  WHERE flow_id IS NOT NULL AND ended_at IS NULL AND cancel_requested_at IS NULL;

-- From now on the number of flows in each status is kept like that of tasks.
INSERT INTO counters (noun, status, amount) SELECT 'flow', status, COUNT(*) FROM flows GROUP BY status;

-- The events of flows: a task's events have an index, and those of a flow belong to no task.
CREATE INDEX ledger_events_of_flows ON ledger_events (subject_id, position)
  WHERE subject_id >= 'flow_' AND subject_id < 'flow`';

-- Ended flows that retention would never delete.
CREATE INDEX flows_unstamped ON flows (id) WHERE ended_at IS NOT NULL AND cleanup_after IS NULL;
-- Live tasks of a flow: the sweep compares their number with the count that the flow keeps.
CREATE INDEX tasks_live_of_flow ON tasks (flow_id) WHERE flow_id IS NOT NULL AND ended_at IS NULL;
