-- A checkpoint that waits for its wake cannot be claimed; the wake removes this name when it fires.
ALTER TABLE run_checkpoints ADD COLUMN wake_id TEXT;
-- Without those that wait: however many they are, a claim reads past none of them.
CREATE INDEX run_checkpoints_resumable ON run_checkpoints (priority, created_at, id)
  WHERE status = 'paused_for_restart' AND wake_id IS NULL;
DROP INDEX run_checkpoints_paused;
-- A reason of the user's own, beside the kind of the wake.
ALTER TABLE wakes ADD COLUMN own_reason TEXT;
-- These find what was written while the clock was ahead. Their second conditions always hold; they keep a planner
-- without statistics from using these indexes for other queries.
CREATE INDEX wakes_written ON wakes (updated_at) WHERE status = 'pending' AND attempt > 0;
CREATE INDEX runs_waiting_since ON runs (updated_at) WHERE status = 'waiting' AND number > 0;
CREATE INDEX runs_later_since ON runs (updated_at) WHERE status = 'queued' AND queue = 'later' AND number > 1;
