-- name: insert_effect
-- The durable note that an effect is about to happen.
INSERT INTO effects
VALUES (:id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
        :created_at, :digest, :status, :fence, :outcome, :outcome_digest, :review, :review_digest, :settle_after,
        :updated_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: begin_effect
-- The same note, if the run is still held with this fence; the first note stays.
INSERT INTO effects
SELECT :id, :task_id, :run_id, :scope, :name, :occurrence, :effect_class, :idempotency_key, :generation, :request,
       :created_at, :digest, :status, :fence, :outcome, :outcome_digest, :review, :review_digest, :settle_after,
       :updated_at
  FROM runs
 WHERE id = :run_id AND fence = :fence AND status = 'running' AND task_id = :task_id
ON CONFLICT DO NOTHING
RETURNING id;

-- name: find_effect
-- The effect that has this id, or else this key.
SELECT * FROM effects WHERE id = :id OR (idempotency_key = :idempotency_key AND generation = :generation)
 ORDER BY CASE WHEN id = :id THEN 0 ELSE 1 END LIMIT 1;

-- name: get_effect
-- One effect.
SELECT * FROM effects WHERE id = :id;

-- name: find_effects
-- Ids that begin with a prefix.
SELECT id, task_id FROM effects WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: move_effect
-- To another status, from any that the table allows.
UPDATE effects SET status = :to, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: settle_effect
-- To another status, from any that the table allows, with what came of it.
UPDATE effects SET status = :to, outcome = :outcome, outcome_digest = :outcome_digest, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: review_effect
-- What a person decided about it.
UPDATE effects SET review = :review, review_digest = :review_digest, updated_at = :now
 WHERE id = :id
RETURNING *;

-- name: unsettled_effects
-- The effects of several tasks but those that are simply done.
SELECT * FROM effects WHERE task_id IN :ids[] AND status <> 'done' ORDER BY task_id, id;

-- name: effects_to_review
-- Effects of which nobody knows whether they happened, oldest first.
SELECT * FROM effects WHERE status = 'unknown' AND id > :after ORDER BY id LIMIT :limit;

-- name: effects_of_task
-- All effects of a task, oldest first.
SELECT * FROM effects WHERE task_id = :task_id ORDER BY id;

-- name: newest_effects_of_task
-- The newest effects of a task, for whoever looks.
SELECT * FROM effects WHERE task_id = :task_id ORDER BY id DESC LIMIT :limit;

-- name: settled_keys
-- Of these keys, those of effects whose outcome is known: nobody will ask the world about them any more.
SELECT idempotency_key FROM effects WHERE idempotency_key IN :keys[]
 GROUP BY idempotency_key
HAVING SUM(CASE WHEN status IN ('intent', 'unknown') THEN 1 ELSE 0 END) = 0;

-- name: delete_effects_of_tasks
-- Retention.
DELETE FROM effects WHERE task_id IN :ids[];
