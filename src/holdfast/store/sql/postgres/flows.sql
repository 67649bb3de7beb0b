-- name: lock_flow
-- One flow, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM flows WHERE id = :id FOR NO KEY UPDATE;

-- name: flows_to_prune
-- Ended flows whose retention is over, oldest first.
-- Differs: they are locked, so that none is reopened while it is being deleted; locked ones are skipped.
SELECT id, nodes FROM flows
 WHERE cleanup_after IS NOT NULL AND cleanup_after <= :now
 ORDER BY cleanup_after, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;

-- name: page_of_flows_in_status
-- Those in one status, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all flows.
SELECT * FROM flows
 WHERE (status, id) < (:status, :before) AND (status, id) > (:status, '')
 ORDER BY status DESC, id DESC LIMIT :limit;

-- name: page_of_flows_of_owner
-- Those of one owner, newest first.
-- Differs: with `=`, the server may walk through the primary key until it has a page; if few fit, that is all flows.
SELECT * FROM flows
 WHERE (owner, id) < (:owner, :before) AND (owner, id) > (:owner, '')
 ORDER BY owner DESC, id DESC LIMIT :limit;

-- name: insert_flow_node_many
-- The nodes of a flow's definition.
-- Only: one statement for all rows is several times as fast here as one statement for each.
INSERT INTO flow_nodes
SELECT * FROM unnest(
         CAST(:flow_id AS text[]), CAST(:place AS text[]), CAST(:node_id AS text[]), CAST(:plan AS bytea[]),
         CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]), CAST(:status AS text[]),
         CAST(:unmet AS bigint[]), CAST(:task_id AS text[]), CAST(:failure AS bytea[]),
         CAST(:updated_at AS bigint[]))
ON CONFLICT (flow_id, place) DO NOTHING;
