-- name: insert_flow
-- State above several tasks; the same id again changes nothing.
INSERT INTO flows
VALUES (:id, :owner, :mode, :goal, :created_at, :digest, :status, :revision, :current_step, :contents,
        :waits_on, :blocked_by_task_id, :cancel_requested_at, :updated_at, :ended_at, :name, :controller,
        :dedup_key, :wait, :documents_digest, :failure, :cancel_reason, :change_token, :nodes, :live,
        :succeeded, :failed, :cancelled, :lost, :cleanup_after)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_flow
-- One flow.
SELECT * FROM flows WHERE id = :id;

-- name: get_flows
-- Several flows by their ids.
SELECT * FROM flows WHERE id IN :ids[] ORDER BY id;

-- name: lock_flow
-- One flow, locked until this transaction ends.
SELECT * FROM flows WHERE id = :id;

-- name: move_flow
-- To another status, from any that the table allows, if it has not changed since it was read.
UPDATE flows
   SET status = :to, revision = revision + 1, updated_at = :now,
       ended_at = CASE WHEN :to IN ('succeeded', 'failed', 'cancelled', 'lost') THEN :now ELSE ended_at END
 WHERE id = :id AND revision = :revision AND status IN :sources[]
RETURNING *;

-- name: save_flow
-- All that changes of a flow, if it has not changed since it was read.
UPDATE flows
   SET status = :status, revision = :revision, current_step = :current_step, contents = :contents,
       waits_on = :waits_on, blocked_by_task_id = :blocked_by_task_id,
       cancel_requested_at = :cancel_requested_at, updated_at = :updated_at, ended_at = :ended_at,
       wait = :wait, documents_digest = :documents_digest, failure = :failure,
       cancel_reason = :cancel_reason, change_token = :change_token, live = :live, succeeded = :succeeded,
       failed = :failed, cancelled = :cancelled, lost = :lost, cleanup_after = :cleanup_after
 WHERE id = :id AND revision = :from_revision AND status = :from AND status IN :sources[]
RETURNING id;

-- name: reopen_flow
-- A mirrored flow follows its task, which was reopened; an earlier cancel no longer counts.
-- moves: flow failed|cancelled|lost -> queued (reopen)
UPDATE flows
   SET status = 'queued', revision = revision + 1, ended_at = NULL, cleanup_after = NULL, failure = NULL,
       cancel_requested_at = NULL, cancel_reason = NULL, updated_at = :now
 WHERE id = :id AND status IN ('failed', 'cancelled', 'lost')
RETURNING *;

-- name: find_flows
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, owner FROM flows WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: find_flows_of_owner
-- The same among one owner's flows; those of others must not show.
SELECT id, owner FROM flows WHERE owner = :owner AND id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: page_of_flows
-- Newest first, a page at a time.
SELECT * FROM flows WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_flows_in_status
-- Those in one status, newest first.
SELECT * FROM flows WHERE status = :status AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_flows_of_owner
-- Those of one owner, newest first.
SELECT * FROM flows WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_flows_of_owner_in_status
-- Those of one owner in one status, newest first.
SELECT * FROM flows
 WHERE owner = :owner AND status = :status AND id < :before
 ORDER BY id DESC LIMIT :limit;

-- name: flows_to_stop
-- Live flows whose cancel was requested, through the index flows_to_stop.
SELECT * FROM flows
 WHERE cancel_requested_at IS NOT NULL AND ended_at IS NULL AND id > :after
 ORDER BY id LIMIT :limit;

-- name: flows_to_prune
-- Ended flows whose retention is over, oldest first.
SELECT id, nodes FROM flows
 WHERE cleanup_after IS NOT NULL AND cleanup_after <= :now
 ORDER BY cleanup_after, id LIMIT :limit;

-- name: flows_past_retention
-- The same without locking them, for a preview.
SELECT id FROM flows
 WHERE cleanup_after IS NOT NULL AND cleanup_after <= :now
 ORDER BY cleanup_after, id LIMIT :limit;

-- name: unstamped_flows
-- Ended flows without a time to clean them up, through the index flows_unstamped.
SELECT id, ended_at FROM flows WHERE ended_at IS NOT NULL AND cleanup_after IS NULL ORDER BY id LIMIT :limit;

-- name: stamp_flow
-- The time to clean up an ended flow; the first one stays.
UPDATE flows SET cleanup_after = :cleanup_after
 WHERE id = :id AND ended_at IS NOT NULL AND cleanup_after IS NULL
RETURNING id;

-- name: live_tasks_of_flows
-- How many tasks of each of these flows are alive, through the index tasks_live_of_flow.
SELECT flow_id, COUNT(*) FROM tasks
 WHERE flow_id IS NOT NULL AND ended_at IS NULL AND flow_id IN :ids[]
 GROUP BY flow_id;

-- name: delete_flows
-- Retention; the tombstones of their dedup keys stay.
DELETE FROM flows WHERE id IN :ids[] AND ended_at IS NOT NULL RETURNING id, status;

-- name: insert_flow_node
-- One node of a flow's definition.
INSERT INTO flow_nodes
VALUES (:flow_id, :place, :node_id, :plan, :created_at, :digest, :status, :unmet, :task_id, :failure, :updated_at)
ON CONFLICT (flow_id, place) DO NOTHING;

-- name: get_flow_nodes
-- Several nodes of one flow by their places.
SELECT * FROM flow_nodes WHERE flow_id = :flow_id AND place IN :places[] ORDER BY place;

-- name: flow_node_of_task
-- The node that a task carries out.
SELECT * FROM flow_nodes WHERE task_id = :task_id;

-- name: flow_node_by_id
-- The node of a flow that has this id.
SELECT * FROM flow_nodes WHERE flow_id = :flow_id AND node_id = :node_id;

-- name: page_of_flow_nodes
-- In the order of the definition, a page at a time.
SELECT * FROM flow_nodes WHERE flow_id = :flow_id AND place > :after ORDER BY place LIMIT :limit;

-- name: failed_flow_nodes
-- Nodes that ended without success, in the order of the definition, through the index flow_nodes_failed.
SELECT * FROM flow_nodes
 WHERE flow_id = :flow_id AND status IN ('failed', 'cancelled') AND place > :after
 ORDER BY place LIMIT :limit;

-- name: meet_flow_needs
-- One need of each of these nodes has succeeded. The caller holds the flow.
UPDATE flow_nodes SET unmet = unmet - 1, updated_at = :now
 WHERE flow_id = :flow_id AND place IN :places[] AND unmet > 0 AND status = 'pending'
RETURNING *;

-- name: move_flow_node
-- To another status, from the one in which it was read. The caller holds the flow.
UPDATE flow_nodes SET status = :to, task_id = :task_id, failure = :failure, updated_at = :now
 WHERE flow_id = :flow_id AND place = :place AND status = :from AND status IN :sources[]
RETURNING *;

-- name: delete_nodes_of_flows
-- Retention.
DELETE FROM flow_nodes WHERE flow_id IN :ids[];

-- name: insert_flow_key
-- A dedup key for a new flow; the first one stays.
INSERT INTO flow_keys (owner, key, flow_id, definition_digest, created_at)
VALUES (:owner, :key, :flow_id, :definition_digest, :now)
ON CONFLICT (owner, key) DO NOTHING
RETURNING flow_id;

-- name: get_flow_key
-- The flow that has this dedup key.
SELECT flow_id, definition_digest, ended_as FROM flow_keys WHERE owner = :owner AND key = :key;

-- name: bury_flow_keys
-- The keys of pruned flows become tombstones that expire; they still record how the flow ended.
UPDATE flow_keys
   SET expires_at = :expires_at, ended_as = (SELECT status FROM flows WHERE flows.id = flow_keys.flow_id)
 WHERE flow_id IN :ids[] AND EXISTS (SELECT 1 FROM flows WHERE flows.id = flow_keys.flow_id);

-- name: delete_expired_flow_keys
-- Expired tombstones.
DELETE FROM flow_keys WHERE expires_at IS NOT NULL AND expires_at <= :now;
