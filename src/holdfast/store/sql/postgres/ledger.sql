-- name: feed
-- What happened after a position, in the order of the transactions.
-- Differs: positions appear out of order, so only what no open transaction can precede is read. A position
-- of a transaction yet to come was given by another server, before a dump was restored: begin again.
-- (The order names its table, or PostgreSQL would sort by the text in the first column.)
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE (txid, position) > (
         CASE WHEN CAST(CAST(:txid AS text) AS xid8) < pg_snapshot_xmax(pg_current_snapshot())
              THEN CAST(CAST(:txid AS text) AS xid8) ELSE CAST('0' AS xid8) END,
         CAST(:position AS bigint))
   AND txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY ledger_events.txid, position LIMIT :limit;

-- name: feed_of_task
-- What happened to one task, in order.
-- Differs: as in feed, nothing is told before all that may still come before it; but whoever changes a task
-- holds its row until the end, so here the order of positions is that in which things happened.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE task_id = :task_id AND position > :position
   AND txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY position LIMIT :limit;

-- name: newest_events
-- The end of the feed.
-- Differs: as in feed, so that whoever follows from here misses nothing.
SELECT CAST(txid AS text), position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE txid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY ledger_events.txid DESC, position DESC LIMIT :limit;

-- name: oldest_event
-- Where the feed begins now.
-- Differs: the order is that of the transactions.
SELECT CAST(txid AS text), position FROM ledger_events ORDER BY ledger_events.txid, position LIMIT 1;

-- name: prune_events
-- Events older than a moment, a bounded number at a time.
-- Differs: one pruner at a time, because the fact that it writes next must not go backwards; and nothing
-- that the feed has not shown yet.
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
-- Events of transactions that this server has yet to number: they came with a dump from another one.
-- Only: SQLite numbers no transactions.
WITH moved AS (
       UPDATE ledger_events SET txid = pg_current_xact_id()
        WHERE txid >= pg_snapshot_xmax(pg_current_snapshot())
     )
UPDATE ledger_facts SET value = '0.0'
 WHERE name = 'pruned_events'
   AND CAST(split_part(value, '.', 1) AS xid8) >= pg_snapshot_xmax(pg_current_snapshot());

-- name: insert_event_many
-- Many things that happened, in order.
-- Only: one statement for all rows is five times as quick here as one statement for each.
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT at, kind, task_id, subject_id, facts
  FROM unnest(
         CAST(:at AS bigint[]), CAST(:kind AS text[]), CAST(:task_id AS text[]), CAST(:subject_id AS text[]),
         CAST(:facts AS bytea[])
       ) WITH ORDINALITY AS given (at, kind, task_id, subject_id, facts, place)
 ORDER BY place;

-- name: add_to_counter
-- Counts are maintained, not scanned.
-- Differs: writers append, because a row that all of them update would let only one commit at a time.
INSERT INTO counter_deltas (noun, status, amount) VALUES (:noun, :status, :amount);

-- name: add_to_counter_many
-- Several counts at once.
-- Only: one statement for all rows is quicker here.
INSERT INTO counter_deltas (noun, status, amount)
SELECT * FROM unnest(CAST(:noun AS text[]), CAST(:status AS text[]), CAST(:amount AS bigint[]));

-- name: counts
-- How many records of a noun there are in each status.
-- Differs: what was folded plus what was appended since.
SELECT status, CAST(SUM(amount) AS bigint)
  FROM (SELECT status, amount FROM counters WHERE noun = :noun
         UNION ALL
        SELECT status, amount FROM counter_deltas WHERE noun = :noun) AS both_parts
 GROUP BY status ORDER BY status;

-- name: fold_counters
-- Move what was appended into the counters, if nobody else is at it.
-- Only: SQLite has one writer, which updates its counters at once.
WITH leader AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7525352680829580149) AS is_alone),
     folded AS (
       DELETE FROM counter_deltas WHERE (SELECT is_alone FROM leader) RETURNING noun, status, amount
     )
INSERT INTO counters
SELECT noun, status, CAST(SUM(amount) AS bigint) FROM folded GROUP BY noun, status ORDER BY noun, status
ON CONFLICT (noun, status) DO UPDATE SET amount = counters.amount + excluded.amount;

-- name: insert_blob
-- A large payload under its digest; the same bytes are kept once.
-- Differs: a blob that is there already is locked, so that retention cannot remove it before its use is noted.
INSERT INTO blobs VALUES (:digest, :size_bytes, :body)
ON CONFLICT (digest) DO UPDATE SET size_bytes = excluded.size_bytes;

-- name: insert_receipt
-- Where a session will note which of its transactions committed last.
-- Only: SQLite answers in the same process, so no answer is ever lost.
INSERT INTO commit_receipts VALUES (:id, 0, holdfast_now()) ON CONFLICT (id) DO NOTHING;

-- name: write_receipt
-- The first statement of every transaction, run with EXECUTE: so the number comes first. It tells the time.
-- Only: see insert_receipt.
UPDATE commit_receipts SET number = :number, written_at = holdfast_now() WHERE id = :id RETURNING written_at;

-- name: read_receipt
-- The last transaction that committed; waits for one that has not ended yet.
-- Only: see insert_receipt.
SELECT number FROM commit_receipts WHERE id = :id FOR UPDATE;

-- name: delete_receipt
-- The session ends, and nobody waits for an answer.
-- Only: see insert_receipt.
DELETE FROM commit_receipts WHERE id = :id;

-- name: delete_old_receipts
-- Those of sessions that died a week ago or earlier.
-- Only: see insert_receipt.
DELETE FROM commit_receipts WHERE written_at <= (SELECT holdfast_now()) - 604800000000;

-- name: notify
-- Hint at topics, to whoever listens.
-- Only: SQLite's processes poll.
SELECT pg_notify('holdfast', :topics);

-- name: lock_boot
-- One boot, whose end nobody notes before this transaction is over.
-- Differs: other writers are not kept out by the transaction itself, so the row is locked.
SELECT * FROM boots WHERE id = :id FOR SHARE;
