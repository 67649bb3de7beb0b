-- name: insert_question
-- A run asks a person; the same id again changes nothing.
INSERT INTO questions
VALUES (:id, :task_id, :run_id, :question, :choices, :default_answer, :asked_at, :due_at, :digest,
        :answered_at, :answer, :answer_digest, :answered_by)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_question
-- One question.
SELECT * FROM questions WHERE id = :id;

-- name: find_questions
-- Ids that begin with a prefix.
SELECT id, task_id FROM questions WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: answer_question
-- The first answer stays.
UPDATE questions
   SET answered_at = :now, answer = :answer, answer_digest = :answer_digest, answered_by = :by
 WHERE id = :id AND answered_at IS NULL
RETURNING id;

-- name: open_questions
-- Unanswered questions, oldest first.
SELECT * FROM questions WHERE answered_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: open_questions_of_task
-- The unanswered questions of a task, oldest first.
SELECT * FROM questions WHERE task_id = :task_id AND answered_at IS NULL ORDER BY id LIMIT :limit;

-- name: delete_questions_of_tasks
-- Retention.
DELETE FROM questions WHERE task_id IN :ids[];
