-- name: insert_effect
-- Record the intent of an effect, unless a finished turn has an effect with its key.
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, :status, :fence, :outcome, :outcome_digest, :review, :review_digest, :settle_after,
       :updated_at, 1
 WHERE (:scope = '' OR (SELECT 1 FROM effects AS past
                           WHERE past.task_id = :task_id AND past.in_journal = 0 AND past.scope = :scope
                             AND past.name = :name AND past.occurrence = :occurrence
                             AND past.generation = :generation) IS NULL)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_effect
-- The effect with this key.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal IN (0, 1) AND scope = :scope AND name = :name
   AND occurrence = :occurrence AND generation = :generation;

-- name: get_effect
-- One effect that failed, or whose outcome is or was unknown.
SELECT * FROM effects WHERE id = :id AND doubt IS NOT NULL;

-- name: find_effects
-- Ids of such effects that begin with a prefix.
SELECT id, task_id FROM effects
 WHERE id >= :low AND id < :high AND doubt IS NOT NULL
 ORDER BY id LIMIT 3;

-- name: settle_effect
-- To another status, from any that the table allows, with its outcome.
UPDATE effects SET status = :to, outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name
   AND occurrence = :occurrence AND generation = :generation AND status IN :sources[]
RETURNING *;

-- name: review_effect
-- A person's decision about it.
UPDATE effects SET review = :review, review_digest = :review_digest, updated_at = :now
 WHERE id = :id AND doubt IS NOT NULL
RETURNING *;

-- name: unsettled_effects
-- The effects in the journals of several tasks that are not done.
SELECT * FROM effects WHERE task_id IN :ids[] AND in_journal = 1 AND status <> 'done'
 ORDER BY task_id, scope, name, occurrence, generation;

-- name: get_done_effect
-- The finished effect that is a step of the journal, by its key.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name AND occurrence = :occurrence
   AND status IN ('done', 'confirmed')
 ORDER BY generation DESC LIMIT 1;

-- name: done_effects_of_task
-- The finished effects that are steps of a task's journal, in order.
SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY updated_at, scope, name, occurrence LIMIT :limit;

-- name: done_effects_from
-- The same from a moment on.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed') AND updated_at >= :seq
 ORDER BY updated_at, scope, name, occurrence LIMIT :limit;

-- name: done_effects_of_scope_from
-- The same for the effects of a scope and of all scopes inside it.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed') AND updated_at >= :seq
   AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low)
 ORDER BY updated_at, scope, name, occurrence LIMIT :limit;

-- name: past_effects_of_scope
-- The finished effects of a scope whose turn has committed; the newest generation of each last.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal = 0 AND scope = :scope AND status IN ('done', 'confirmed')
 ORDER BY name, occurrence, generation;

-- name: newest_done_effects_of_task
-- The same, newest first, for display.
SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY updated_at DESC, scope DESC, name DESC, occurrence DESC LIMIT :limit;

-- name: done_effects_of_tasks
-- The finished effects that are steps of the journals of several tasks.
SELECT * FROM effects WHERE task_id IN :ids[] AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY task_id, scope, name, occurrence, generation;

-- name: close_effects_of_scope
-- Remove the effects of a scope and of all scopes inside it from the journal with their turn, but never open ones.
UPDATE effects SET in_journal = 0
 WHERE task_id = :task_id AND in_journal = 1
   AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low)
   AND status NOT IN ('intent', 'unknown');

-- name: effects_to_review
-- Effects whose outcome is unknown, oldest first.
SELECT * FROM effects WHERE doubt = 'unknown' AND id > :after ORDER BY id LIMIT :limit;

-- name: effects_of_task
-- All effects of a task, oldest first.
SELECT * FROM effects WHERE task_id = :task_id ORDER BY id;

-- name: newest_effects_of_task
-- The newest effects of a task, for display.
SELECT * FROM (SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 ORDER BY id DESC LIMIT :limit) AS present
 UNION ALL
SELECT * FROM (SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 0 ORDER BY id DESC LIMIT :limit) AS past
 ORDER BY id DESC LIMIT :limit;

-- name: settled_keys
-- Those of these keys whose effect has a known outcome, so that it needs no further verification.
SELECT idempotency_key FROM effects WHERE idempotency_key IN :keys[] AND effect_class = 'verifiable'
 GROUP BY idempotency_key
HAVING SUM(CASE WHEN status IN ('intent', 'unknown') THEN 1 ELSE 0 END) = 0;

-- name: effects_to_stop
-- The effects with these keys whose outcome is open and whose task has a request to cancel.
SELECT effects.* FROM effects JOIN tasks ON tasks.id = effects.task_id
 WHERE effects.idempotency_key IN :keys[] AND effects.effect_class = 'verifiable'
   AND effects.status IN ('intent', 'unknown') AND tasks.cancel_requested_at IS NOT NULL
 ORDER BY effects.id;

-- name: delete_effects_of_tasks
-- Retention.
DELETE FROM effects WHERE task_id IN :ids[];

-- name: effects_of_tasks
-- All effects of several tasks, oldest first.
SELECT * FROM effects WHERE task_id IN :ids[] ORDER BY task_id, id;

-- name: any_effect_of_tasks
-- Whether one of these tasks has an effect.
SELECT 1 FROM effects WHERE task_id IN :ids[] LIMIT 1;
