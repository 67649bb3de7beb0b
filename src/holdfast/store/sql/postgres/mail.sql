-- name: hold_task
-- Whether the task exists; locks it until the transaction ends, so that its mail has one order.
-- Differs: the row is locked, so that two senders cannot get the same number.
SELECT 1 FROM tasks WHERE id = :id FOR NO KEY UPDATE;
