-- name: begin_effect
-- The durable note that an effect is about to happen, if the run is still held with this fence.
-- Differs: it returns nothing, because to count the changes is half as dear here as to return a row.
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, :status, :fence, :outcome, :outcome_digest, :review, :review_digest, :settle_after,
       :updated_at
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT DO NOTHING;

-- name: finish_effect
-- An effect that is open is done, if the run is still held with this fence.
-- Differs: SQLite has one writer, so the step goes in afterwards, by insert_step.
-- moves: effect intent -> done
UPDATE effects SET status = 'done', outcome = ?2, outcome_digest = ?3, updated_at = ?4
 WHERE id = ?1 AND status = 'intent'
   AND EXISTS (SELECT 1 FROM runs
                WHERE runs.id = ?5 AND runs.fence = ?6 AND runs.status = 'running' AND runs.task_id = ?7);
