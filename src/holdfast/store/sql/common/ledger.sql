-- name: insert_event
-- One event.
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
VALUES (:at, :kind, :task_id, :subject_id, :facts);

-- name: feed
-- The events after a position, in the order of the commits.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE position > :position
 ORDER BY position LIMIT :limit;

-- name: feed_of_task
-- The events of one task, in order.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id AND position > :position
 ORDER BY position LIMIT :limit;

-- name: newest_events_of_task
-- The last events of one task, newest first, through the index of tasks.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id
 ORDER BY position DESC LIMIT :limit;

-- name: events_of_task_and_kind
-- The newest events of one kind about a task, newest first, through the index of tasks.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id AND kind = :kind
 ORDER BY position DESC LIMIT :limit;

-- name: newest_events
-- The end of the feed.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 ORDER BY position DESC LIMIT :limit;

-- name: newest_events_of_flow
-- The last events of one flow, newest first, through the index ledger_events_of_flows.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE subject_id = :flow_id AND subject_id >= 'flow_' AND subject_id < 'flow`'
 ORDER BY position DESC LIMIT :limit;

-- name: oldest_event
-- The oldest event in the feed.
SELECT 0, position FROM ledger_events ORDER BY position LIMIT 1;

-- name: prune_events
-- Events older than a moment, a bounded number at a time.
DELETE FROM ledger_events
 WHERE position IN (SELECT position FROM ledger_events WHERE at <= :older_than ORDER BY at LIMIT :limit)
RETURNING 0, position;

-- name: add_to_counter
-- Counts are updated with each write, so that reading them needs no scan.
INSERT INTO counters VALUES (:noun, :status, :amount)
ON CONFLICT (noun, status) DO UPDATE SET amount = counters.amount + excluded.amount;

-- name: counts
-- How many records of a noun have each status.
SELECT status, amount FROM counters WHERE noun = :noun ORDER BY status;

-- name: get_fact
-- A fact of the ledger.
SELECT value FROM ledger_facts WHERE name = :name;

-- name: get_facts
-- Several facts of the ledger.
SELECT name, value FROM ledger_facts WHERE name IN :names[] ORDER BY name;

-- name: set_fact
-- A fact of the ledger.
INSERT INTO ledger_facts VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: add_fact
-- A fact that the first writer sets for good.
INSERT INTO ledger_facts VALUES (:name, :value) ON CONFLICT (name) DO NOTHING;

-- name: replace_fact
-- Compare and set a fact.
UPDATE ledger_facts SET value = :value WHERE name = :name AND value = :old RETURNING name;

-- name: insert_boot
-- A process that will hold claims begins.
INSERT INTO boots VALUES (:id, :host, :pid, :role, :started_at, NULL, :task_names) ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: end_boot
-- A boot has ended: it recorded that itself, or its death was proved.
UPDATE boots SET ended_at = :now WHERE id = :id AND ended_at IS NULL RETURNING id;

-- name: get_boot
-- One boot.
SELECT * FROM boots WHERE id = :id;

-- name: lock_boot
-- One boot, locked: no other transaction can record its end before this one ends.
SELECT * FROM boots WHERE id = :id;

-- name: boots_alive
-- Boots that have not ended, as far as the ledger knows.
SELECT * FROM boots WHERE ended_at IS NULL ORDER BY id LIMIT :limit;

-- name: page_of_boots_alive
-- The same, a page at a time.
SELECT * FROM boots WHERE ended_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: page_of_boots_ended
-- Boots that have ended, the latest start first.
SELECT * FROM boots WHERE ended_at IS NOT NULL AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: carried_by_boots
-- How many runs each of these boots carries, and the latest beat and lease of them.
SELECT claimed_by, COUNT(*), MAX(beat_at), MAX(lease_until) FROM runs
 WHERE claimed_by IN :ids[] AND status = 'running'
 GROUP BY claimed_by ORDER BY claimed_by;

-- name: boots_alive_at
-- Those of them whose host begins with this text.
SELECT * FROM boots
 WHERE ended_at IS NULL AND substr(host, 1, length(CAST(:beginning AS text))) = CAST(:beginning AS text)
 ORDER BY id LIMIT :limit;

-- name: forget_boot
-- A boot without a recorded end that no claim names.
DELETE FROM boots
 WHERE id = :id AND ended_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM runs WHERE claimed_by = :id AND status = 'running')
   AND NOT EXISTS (SELECT 1 FROM run_checkpoints WHERE claimed_by = :id AND status = 'resuming')
RETURNING id;

-- name: delete_ended_boots
-- Retention: boots that ended long ago and that nothing live names.
DELETE FROM boots WHERE ended_at <= :older_than;

-- name: insert_blob
-- A large payload under its digest; the same bytes are stored once.
INSERT INTO blobs VALUES (:digest, :size_bytes, :body) ON CONFLICT (digest) DO NOTHING;

-- name: use_blob
-- A task needs this blob.
INSERT INTO blob_uses VALUES (:task_id, :digest) ON CONFLICT (task_id, digest) DO NOTHING;

-- name: get_blob
-- A large payload by its digest.
SELECT body, size_bytes FROM blobs WHERE digest = :digest;

-- name: stop_using_blobs
-- Retention: pruned tasks no longer need their blobs.
DELETE FROM blob_uses WHERE task_id IN :ids[] RETURNING digest;

-- name: delete_unused_blobs
-- Retention: those of these blobs that no task needs any more.
DELETE FROM blobs
 WHERE digest IN :digests[] AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.digest = blobs.digest);
