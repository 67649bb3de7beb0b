-- name: begin_effect
-- Record the intent of an effect, if the run is still held with this fence.
-- Differs: the run is locked, which waits for a transaction that raises its fence.
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, 'intent', :fence, NULL, NULL, NULL, NULL, :settle_after, :created_at, 1
  FROM held
 WHERE fence = :fence AND status = 'running' AND task_id = :task_id
   AND (:scope = '' OR (SELECT 1 FROM effects AS past
                           WHERE past.task_id = :task_id AND past.in_journal = 0 AND past.scope = :scope
                             AND past.name = :name AND past.occurrence = :occurrence
                             AND past.generation = :generation) IS NULL)
ON CONFLICT DO NOTHING;

-- name: begin_effect_outside
-- The same for an effect outside turns, which never leaves the journal.
-- Differs: the run is locked, which waits for a transaction that raises its fence.
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, 'intent', :fence, NULL, NULL, NULL, NULL, :settle_after, :created_at, 1
  FROM held
 WHERE fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT DO NOTHING;

-- name: finish_effect
-- Mark an open effect as done, if the run is still held with this fence.
-- Differs: the run is locked, which waits for a transaction that raises its fence.
-- moves: effect intent -> done
WITH held AS MATERIALIZED (SELECT task_id, fence, status FROM runs WHERE id = :run_id FOR SHARE)
UPDATE effects SET outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now, status = 'done'
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name AND occurrence = :occurrence
   AND generation = :generation AND status = 'intent'
   AND EXISTS (SELECT 1 FROM held
                WHERE held.fence = :fence AND held.status = 'running' AND held.task_id = :task_id);
