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
