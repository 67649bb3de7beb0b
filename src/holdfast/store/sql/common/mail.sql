-- name: hold_task
-- Whether the task exists; locks it until the transaction ends, so that its mail has one order.
SELECT 1 FROM tasks WHERE id = :id;

-- name: next_mail_seq
-- The number of the next mail to a locked task.
SELECT COALESCE(MAX(seq), 0) + 1 FROM mail WHERE task_id = :task_id;

-- name: insert_mail
-- New mail to a task; a second one with the same key changes nothing.
INSERT INTO mail VALUES (:task_id, :seq, :topic, :body, :sender, :key, :sent_at, :digest, :taken_at)
ON CONFLICT (task_id, key) DO NOTHING
RETURNING seq;

-- name: next_mail
-- The oldest mail on a topic that was not taken yet.
SELECT * FROM mail
 WHERE task_id = :task_id AND topic = :topic AND taken_at IS NULL
 ORDER BY seq LIMIT 1;

-- name: mail_of_task
-- All mail that was ever sent to a task, in order.
SELECT * FROM mail WHERE task_id = :task_id ORDER BY seq;

-- name: take_mail
-- Mark it as taken, once.
UPDATE mail SET taken_at = :now
 WHERE task_id = :task_id AND seq = :seq AND taken_at IS NULL
RETURNING seq;

-- name: delete_mail_of_tasks
-- Retention.
DELETE FROM mail WHERE task_id IN :ids[];
