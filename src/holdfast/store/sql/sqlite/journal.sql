-- name: held_runs
-- Of these runs, those that are held, with their fences.
-- Only: SQLite has one writer, so a crowd of steps is guarded once and then inserted row by row.
SELECT id, task_id, fence FROM runs WHERE id IN :ids[] AND status = 'running';

-- name: insert_step
-- One step of a crowd whose runs were found to be held in the same transaction.
-- Only: see held_runs.
INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, scope, name, occurrence) DO NOTHING;
