-- name: insert_effect
-- The durable note that an effect is about to happen; not when a turn that is over has one with its key.
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
-- The effect that has this key.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal IN (0, 1) AND scope = :scope AND name = :name
   AND occurrence = :occurrence AND generation = :generation;

-- name: get_effect
-- One effect that is, or was, in doubt; or has failed.
SELECT * FROM effects WHERE id = :id AND doubt IS NOT NULL;

-- name: find_effects
-- Ids of those that begin with a prefix.
SELECT id, task_id FROM effects
 WHERE id >= :low AND id < :high AND doubt IS NOT NULL
 ORDER BY id LIMIT 3;

-- name: settle_effect
-- To another status, from any that the table allows, with what came of it.
UPDATE effects SET status = :to, outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name
   AND occurrence = :occurrence AND generation = :generation AND status IN :sources[]
RETURNING *;

-- name: review_effect
-- What a person decided about it.
UPDATE effects SET review = :review, review_digest = :review_digest, updated_at = :now
 WHERE id = :id AND doubt IS NOT NULL
RETURNING *;

-- name: unsettled_effects
-- Of the effects in the journals of several tasks those that are not simply done.
SELECT * FROM effects WHERE task_id IN :ids[] AND in_journal = 1 AND status <> 'done'
 ORDER BY task_id, scope, name, occurrence, generation;

-- name: get_done_effect
-- The effect that is a step of the journal, by its key.
SELECT * FROM effects
 WHERE task_id = :task_id AND in_journal = 1 AND scope = :scope AND name = :name AND occurrence = :occurrence
   AND status IN ('done', 'confirmed')
 ORDER BY generation DESC LIMIT 1;

-- name: done_effects_of_task
-- The effects that are steps of a task's journal, in the order in which they were done.
SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY updated_at, scope, name, occurrence LIMIT :limit;

-- name: newest_done_effects_of_task
-- The same from its end, newest first, for whoever looks.
SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY updated_at DESC, scope DESC, name DESC, occurrence DESC LIMIT :limit;

-- name: done_effects_of_tasks
-- The effects that are steps of the journals of several tasks.
SELECT * FROM effects WHERE task_id IN :ids[] AND in_journal = 1 AND status IN ('done', 'confirmed')
 ORDER BY task_id, scope, name, occurrence, generation;

-- name: close_effects_of_scope
-- The effects of a scope and of all below it leave the journal with their turn; what is open never does.
UPDATE effects SET in_journal = 0
 WHERE task_id = :task_id AND in_journal = 1
   AND scope >= :scope AND scope < :high AND (scope = :scope OR scope >= :low)
   AND status NOT IN ('intent', 'unknown');

-- name: effects_to_review
-- Effects of which nobody knows whether they happened, oldest first.
SELECT * FROM effects WHERE doubt = 'unknown' AND id > :after ORDER BY id LIMIT :limit;

-- name: effects_of_task
-- All effects of a task, oldest first.
SELECT * FROM effects WHERE task_id = :task_id ORDER BY id;

-- name: newest_effects_of_task
-- The newest effects of a task, for whoever looks.
SELECT * FROM (SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 1 ORDER BY id DESC LIMIT :limit) AS present
 UNION ALL
SELECT * FROM (SELECT * FROM effects WHERE task_id = :task_id AND in_journal = 0 ORDER BY id DESC LIMIT :limit) AS past
 ORDER BY id DESC LIMIT :limit;

-- name: settled_keys
-- Of these keys, those of effects whose outcome is known: nobody will ask the world about them any more.
SELECT idempotency_key FROM effects WHERE idempotency_key IN :keys[] AND effect_class = 'verifiable'
 GROUP BY idempotency_key
HAVING SUM(CASE WHEN status IN ('intent', 'unknown') THEN 1 ELSE 0 END) = 0;

-- name: effects_to_stop
-- Of these keys, the effects whose outcome is open while a cancel of their task is recorded.
SELECT effects.* FROM effects JOIN tasks ON tasks.id = effects.task_id
 WHERE effects.idempotency_key IN :keys[] AND effects.effect_class = 'verifiable'
   AND effects.status IN ('intent', 'unknown') AND tasks.cancel_requested_at IS NOT NULL
 ORDER BY effects.id;

-- name: delete_effects_of_tasks
-- Retention.
DELETE FROM effects WHERE task_id IN :ids[];
