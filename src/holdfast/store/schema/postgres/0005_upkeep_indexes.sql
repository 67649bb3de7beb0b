-- What upkeep needs, so that neither an audit, a sweep nor the counts read the history.
-- The tasks that a process can run, as a JSON list; null for any, and for processes of earlier versions.
ALTER TABLE boots ADD COLUMN task_names TEXT COLLATE "C";
-- Ended tasks in the order of their ends, whatever the retention of their runtimes. Those that lack a time to clean
-- them up are not in it: they have the index tasks_unstamped, and must be read through it.
CREATE INDEX tasks_by_end ON tasks (ended_at, id) WHERE cleanup_after IS NOT NULL;
-- The same for each runtime, because some runtimes keep their tasks for a shorter time.
CREATE INDEX tasks_by_runtime_end ON tasks (runtime, ended_at, id) WHERE cleanup_after IS NOT NULL;
-- From now on the number of tasks of each runtime is kept like the number in each status.
INSERT INTO counters (noun, status, amount) SELECT 'runtime', runtime, COUNT(*) FROM tasks GROUP BY runtime;
