-- name: hold_task
-- Whether the task is there; keeps its mail in order until the transaction ends.
-- Differs: the row is locked, so that two senders cannot be given the same place.
SELECT 1 FROM tasks WHERE id = :id FOR NO KEY UPDATE;
