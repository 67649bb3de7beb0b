-- What upkeep looks for, so that neither an audit nor a sweep reads the history.
-- Recorded work in flight: the sweep asks its runtime whether it is alive.
CREATE INDEX runs_recorded ON runs (queue, id) WHERE queue = 'producer' AND ended_at IS NULL;
-- Ended tasks that retention would never delete.
CREATE INDEX tasks_unstamped ON tasks (ended_at, id) WHERE ended_at IS NOT NULL AND cleanup_after IS NULL;
