-- name: deliveries_to_prune
-- Old settled deliveries whose task is gone, oldest first; others are deleted with their task.
-- Differs: they are locked, and rows that are locked already are skipped, so that two processes cannot deadlock.
SELECT id FROM deliveries
 WHERE status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed')
   AND updated_at <= :older_than
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = deliveries.task_id)
 ORDER BY updated_at, id LIMIT :limit
   FOR UPDATE SKIP LOCKED;

-- name: insert_delivery_many
-- Many new deliveries; existing ones change nothing.
-- Only: SQLite runs the statement of one row once for each.
INSERT INTO deliveries
SELECT * FROM unnest(
         CAST(:id AS text[]), CAST(:task_id AS text[]), CAST(:idempotency_key AS text[]), CAST(:origin AS bytea[]),
         CAST(:target AS text[]), CAST(:message AS bytea[]), CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]),
         CAST(:status AS text[]), CAST(:attempts AS bigint[]), CAST(:due_at AS bigint[]), CAST(:failure AS bytea[]),
         CAST(:claimed_by AS text[]), CAST(:updated_at AS bigint[]), CAST(:channel AS text[]))
ON CONFLICT DO NOTHING;
