-- name: feed
-- The events after a position, in the order of the transactions.
-- Differs: positions appear out of order, so only events that no open transaction can precede are read. If a
-- position is of a future transaction, another server issued it before a dump was restored: begin again.
-- (ORDER BY names the table; otherwise PostgreSQL would sort by the text in the first column.)
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE (txid, position) > (
         CASE WHEN CAST(CAST(:txid AS text) AS xid8) < pg_snapshot_xmax(pg_current_snapshot())
              THEN CAST(CAST(:txid AS text) AS xid8) ELSE CAST('0' AS xid8) END,
         CAST(:position AS bigint))
   AND txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY ledger_events.txid, position LIMIT :limit;

-- name: feed_of_task
-- The events of one task, in order.
-- Differs: as in feed, an event is read only when no earlier one can still appear; but a transaction that changes a
-- task locks its row until it ends, so the order of positions is the order of events here.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id AND position > :position
   AND txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY position LIMIT :limit;

-- name: newest_events_of_task
-- The last events of one task, newest first, through the index of tasks.
-- Differs: as in feed_of_task, so that a follower that begins here misses nothing.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id AND txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY position DESC LIMIT :limit;

-- name: newest_events
-- The end of the feed.
-- Differs: as in feed, so that a follower that begins here misses nothing.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY ledger_events.txid DESC, position DESC LIMIT :limit;

-- name: newest_events_of_flow
-- The last events of one flow, newest first, through the index ledger_events_of_flows.
-- Differs: the position names the transaction, too. A flow is locked while it changes, so the order of positions is
-- the order of its events.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE subject_id = :flow_id AND subject_id >= 'flow_' AND subject_id < 'flow`'
 ORDER BY position DESC LIMIT :limit;

-- name: oldest_event
-- The oldest event in the feed.
-- Differs: the order is by transaction.
SELECT CAST(txid AS text), position FROM ledger_events ORDER BY ledger_events.txid, position LIMIT 1;

-- name: prune_events
-- Events older than a moment, a bounded number at a time.
-- Differs: one pruner at a time, because the fact that it writes next must not go backwards; and no events that
-- the feed does not show yet.
WITH pruner AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7525352680829580150) AS is_alone)
DELETE FROM ledger_events
 WHERE position IN (
         SELECT position FROM ledger_events
          WHERE at <= :older_than AND txid < pg_snapshot_xmin(pg_current_snapshot())
          ORDER BY at LIMIT :limit
       )
   AND (SELECT is_alone FROM pruner)
RETURNING CAST(txid AS text), position;

-- name: rebase_events
-- Events with future transaction ids: they came with a dump from another server.
-- Only: SQLite has no transaction ids.
WITH moved AS (
       UPDATE ledger_events SET txid = pg_current_xact_id()
        WHERE txid >= pg_snapshot_xmax(pg_current_snapshot())
     )
UPDATE ledger_facts SET value = '0.0'
 WHERE name = 'pruned_events'
   AND CAST(split_part(value, '.', 1) AS xid8) >= pg_snapshot_xmax(pg_current_snapshot());

-- name: insert_event_many
-- Many events, in order.
-- Only: one statement for all rows is five times as fast here as one statement for each.
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT at, kind, task_id, subject_id, facts
  FROM unnest(
         CAST(:at AS bigint[]), CAST(:kind AS text[]), CAST(:task_id AS text[]), CAST(:subject_id AS text[]),
         CAST(:facts AS bytea[])
       ) WITH ORDINALITY AS given (at, kind, task_id, subject_id, facts, place)
 ORDER BY place;

-- name: add_to_counter
-- Counts are updated with each write, so that reading them needs no scan.
-- Differs: writers append rows, because a row that all of them update would serialise their commits.
INSERT INTO counter_deltas (noun, status, amount) VALUES (:noun, :status, :amount);

-- name: add_to_counter_many
-- Several counts at once.
-- Only: one statement for all rows is faster here.
INSERT INTO counter_deltas (noun, status, amount)
SELECT * FROM unnest(CAST(:noun AS text[]), CAST(:status AS text[]), CAST(:amount AS bigint[]));

-- name: counts
-- How many records of a noun have each status.
-- Differs: the folded counts plus the rows appended since.
SELECT status, CAST(SUM(amount) AS bigint)
  FROM (SELECT status, amount FROM counters WHERE noun = :noun
         UNION ALL
        SELECT status, amount FROM counter_deltas WHERE noun = :noun) AS both_parts
 GROUP BY status ORDER BY status;

-- name: fold_counters
-- Fold the appended rows into the counters, unless another process is doing so.
-- Only: SQLite has one writer, which updates its counters at once.
WITH leader AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7525352680829580149) AS is_alone),
     folded AS (
       DELETE FROM counter_deltas WHERE (SELECT is_alone FROM leader) RETURNING noun, status, amount
     )
INSERT INTO counters
SELECT noun, status, CAST(SUM(amount) AS bigint) FROM folded GROUP BY noun, status ORDER BY noun, status
ON CONFLICT (noun, status) DO UPDATE SET amount = counters.amount + excluded.amount;

-- name: insert_blob
-- A large payload under its digest; the same bytes are stored once.
-- Differs: an existing blob is locked, so that retention cannot delete it before its use is recorded.
INSERT INTO blobs VALUES (:digest, :size_bytes, :body)
ON CONFLICT (digest) DO UPDATE SET size_bytes = excluded.size_bytes;

-- name: insert_receipt
-- The row in which a session records its last committed transaction.
-- Only: SQLite runs in this process, so the answer to a commit cannot be lost.
INSERT INTO commit_receipts VALUES (:id, 0, holdfast_now()) ON CONFLICT (id) DO NOTHING;

-- name: write_receipt
-- The first statement of every transaction, run with EXECUTE, so that the number comes first. It returns the time.
-- Only: see insert_receipt.
UPDATE commit_receipts SET number = :number, written_at = holdfast_now() WHERE id = :id RETURNING written_at;

-- name: read_receipt
-- The last transaction that committed; waits for one that has not ended yet.
-- Only: see insert_receipt.
SELECT number FROM commit_receipts WHERE id = :id FOR UPDATE;

-- name: delete_receipt
-- The session ends and no longer needs its receipt.
-- Only: see insert_receipt.
DELETE FROM commit_receipts WHERE id = :id;

-- name: delete_old_receipts
-- The receipts of sessions that died a week ago or earlier.
-- Only: see insert_receipt.
DELETE FROM commit_receipts WHERE written_at <= (SELECT holdfast_now()) - 604800000000;

-- name: notify
-- Notify listeners of topics.
-- Only: SQLite's processes poll.
SELECT pg_notify('holdfast', :topics);

-- name: lock_boot
-- One boot, locked: no other transaction can record its end before this one ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM boots WHERE id = :id FOR SHARE;
