-- name: begin_effect
-- Record the intent of an effect, if the run is still held with this fence.
-- Differs: it returns nothing, because counting the changes costs half as much here as returning a row.
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, 'intent', :fence, NULL, NULL, NULL, NULL, :settle_after, :created_at, 1
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
   AND (:scope = '' OR (SELECT 1 FROM effects AS past
                           WHERE past.task_id = :task_id AND past.in_journal = 0 AND past.scope = :scope
                             AND past.name = :name AND past.occurrence = :occurrence
                             AND past.generation = :generation) IS NULL)
ON CONFLICT DO NOTHING;

-- name: begin_effect_outside
-- The same for an effect outside turns, which never leaves the journal.
-- Differs: it returns nothing, because counting the changes costs half as much here as returning a row.
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, 'intent', :fence, NULL, NULL, NULL, NULL, :settle_after, :created_at, 1
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT DO NOTHING;

-- name: finish_effect
-- Mark an open effect as done, if the run is still held with this fence.
-- Differs: it returns nothing, because counting the changes costs half as much here as returning a row.
-- moves: effect intent -> done
UPDATE effects SET outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now, status = 'done'
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name AND occurrence = :occurrence
   AND generation = :generation AND status = 'intent'
   AND (SELECT fence FROM runs WHERE id = :run_id AND status = 'running' AND task_id = :task_id) = :fence;
