-- name: scan_tasks
-- Every row, a page at a time, to be verified.
SELECT * FROM tasks WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_runs
-- Every row, a page at a time, to be verified.
SELECT * FROM runs WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_steps
-- Every row, a page at a time, to be verified.
SELECT * FROM steps WHERE (task_id, scope, name, occurrence) > (:after0, :after1, :after2, :after3) ORDER BY task_id, scope, name, occurrence LIMIT :limit;

-- name: scan_plans
-- Every row, a page at a time, to be verified.
SELECT * FROM plans WHERE task_id > :after0 ORDER BY task_id LIMIT :limit;

-- name: scan_artifacts
-- Every row, a page at a time, to be verified.
SELECT * FROM artifacts WHERE (task_id, name) > (:after0, :after1) ORDER BY task_id, name LIMIT :limit;

-- name: scan_notes
-- Every row, a page at a time, to be verified.
SELECT * FROM notes WHERE (task_id, seq) > (:after0, :after1) ORDER BY task_id, seq LIMIT :limit;

-- name: scan_loops
-- Every row, a page at a time, to be verified.
SELECT * FROM loops WHERE (task_id, loop) > (:after0, :after1) ORDER BY task_id, loop LIMIT :limit;

-- name: scan_kept_steps
-- Every row, a page at a time, to be verified.
SELECT * FROM kept_steps WHERE (task_id, loop, seq) > (:after0, :after1, :after2) ORDER BY task_id, loop, seq LIMIT :limit;

-- name: scan_turns
-- Every row, a page at a time, to be verified.
SELECT * FROM turns WHERE (task_id, loop, seq) > (:after0, :after1, :after2) ORDER BY task_id, loop, seq LIMIT :limit;

-- name: scan_list_deltas
-- Every row, a page at a time, to be verified.
SELECT * FROM list_deltas WHERE (task_id, list, start) > (:after0, :after1, :after2) ORDER BY task_id, list, start LIMIT :limit;

-- name: scan_values
-- Every row, a page at a time, to be verified.
SELECT * FROM durable_values WHERE (task_id, name) > (:after0, :after1) ORDER BY task_id, name LIMIT :limit;

-- name: scan_scope_ops
-- Every row, a page at a time, to be verified.
SELECT * FROM scope_ops WHERE (task_id, scope) > (:after0, :after1) ORDER BY task_id, scope LIMIT :limit;

-- name: scan_mail
-- Every row, a page at a time, to be verified.
SELECT * FROM mail WHERE (task_id, seq) > (:after0, :after1) ORDER BY task_id, seq LIMIT :limit;

-- name: scan_questions
-- Every row, a page at a time, to be verified.
SELECT * FROM questions WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_checkpoints
-- Every row, a page at a time, to be verified.
SELECT * FROM run_checkpoints WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_effects
-- Every row, a page at a time, to be verified.
SELECT * FROM effects
 WHERE (task_id, in_journal, scope, name, occurrence, generation)
       > (:after0, :after1, :after2, :after3, :after4, :after5)
 ORDER BY task_id, in_journal, scope, name, occurrence, generation LIMIT :limit;

-- name: scan_deliveries
-- Every row, a page at a time, to be verified.
SELECT * FROM deliveries WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_flows
-- Every row, a page at a time, to be verified.
SELECT * FROM flows WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_flow_nodes
-- Every row, a page at a time, to be verified.
SELECT * FROM flow_nodes
 WHERE (flow_id, place) > (:after0, :after1) ORDER BY flow_id, place LIMIT :limit;

-- name: scan_sessions
-- Every row, a page at a time, to be verified.
SELECT * FROM sessions WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_messages
-- Every row, a page at a time, to be verified.
SELECT * FROM messages WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_firings
-- Every row, a page at a time, to be verified.
SELECT * FROM firings WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_wakes
-- Every row, a page at a time, to be verified.
SELECT * FROM wakes WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_schedules
-- Every row, a page at a time, to be verified.
SELECT * FROM schedules WHERE name > :after0 ORDER BY name LIMIT :limit;

-- name: scan_restarts
-- Every row, a page at a time, to be verified.
SELECT * FROM restarts WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_audit_log
-- Every row, a page at a time, to be verified.
SELECT * FROM audit_log WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_recorded_tasks
-- Every row, a page at a time, to be verified.
SELECT * FROM recorded_tasks WHERE task_id > :after0 ORDER BY task_id LIMIT :limit;

-- name: scan_imported_records
-- Every row, a page at a time, to be verified.
SELECT * FROM imported_records
 WHERE (source, noun, source_id) > (:after0, :after1, :after2) ORDER BY source, noun, source_id LIMIT :limit;

-- name: scan_campaign_checkpoints
-- Every row, a page at a time, to be verified.
SELECT * FROM campaign_checkpoints WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_campaign_checkpoint_places
-- Every row, a page at a time, to be verified.
SELECT * FROM campaign_checkpoint_places
 WHERE (checkpoint_id, phase) > (:after0, :after1) ORDER BY checkpoint_id, phase LIMIT :limit;

-- name: scan_blobs
-- Every blob, a page at a time, to be verified.
SELECT digest FROM blobs WHERE digest > :after0 ORDER BY digest LIMIT :limit;

-- name: scan_campaigns
-- Every row, a page at a time, to be verified.
SELECT * FROM campaigns WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: scan_campaign_items
-- Every row, a page at a time, to be verified.
SELECT * FROM campaign_items WHERE (campaign_id, place) > (:after0, CAST(:after1 AS BIGINT))
 ORDER BY campaign_id, place LIMIT :limit;

-- name: scan_alerts
-- Every row, a page at a time, to be verified.
SELECT * FROM alerts WHERE id > :after0 ORDER BY id LIMIT :limit;

-- name: count_tasks
-- The correct count, by a scan; only for verification.
SELECT status, COUNT(*) FROM tasks GROUP BY status ORDER BY status;

-- name: count_runtimes
-- The correct count, by a scan; only for verification.
SELECT runtime, COUNT(*) FROM tasks GROUP BY runtime ORDER BY runtime;

-- name: count_runs
-- The correct count, by a scan; only for verification.
SELECT status, COUNT(*) FROM runs GROUP BY status ORDER BY status;

-- name: scan_flows_without_all_nodes
-- Flows with another number of nodes than their definition has.
SELECT flows.id, flows.nodes, COUNT(flow_nodes.place)
  FROM flows LEFT JOIN flow_nodes ON flow_nodes.flow_id = flows.id
 WHERE flows.nodes > 0
 GROUP BY flows.id, flows.nodes
HAVING COUNT(flow_nodes.place) <> flows.nodes
 ORDER BY flows.id LIMIT :limit;

-- name: count_flows
-- How many flows there are in each status.
SELECT status, COUNT(*) FROM flows GROUP BY status;

-- name: count_checkpoints
-- The correct count, by a scan; only for verification.
SELECT status, COUNT(*) FROM run_checkpoints WHERE status IS NOT NULL GROUP BY status ORDER BY status;
