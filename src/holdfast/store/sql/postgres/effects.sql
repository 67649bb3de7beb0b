-- name: begin_effect
-- The same note, if the run is still held with this fence; the first note stays.
-- Differs: the run is locked, so that a fence which is being raised is waited for and then seen.
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, :status, :fence, :outcome, :outcome_digest, :review, :review_digest, :settle_after,
       :updated_at
  FROM held
 WHERE fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT DO NOTHING
RETURNING id;

-- name: finish_effect
-- An effect that is open is done, and its step is saved, if the run is still held with this fence.
-- Differs: one statement for both, so that no transaction is needed around them. A result that stands there stays.
-- moves: effect intent -> done
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE),
     settled AS (
       UPDATE effects
          SET status = 'done', outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now
        WHERE id = :id AND status = 'intent'
          AND EXISTS (SELECT 1 FROM held
                       WHERE held.fence = :fence AND held.status = 'running' AND held.task_id = :task_id)
       RETURNING id
     ),
     saved AS (
       INSERT INTO steps
       SELECT :task_id, :scope, :name, :occurrence, :run_id, :seq, :input_digest, :result, :started_at, :ended_at,
              :digest
         FROM settled
       ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING
     )
SELECT id FROM settled;
