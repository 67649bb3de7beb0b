-- What a producer's record also keeps: a report that came after the end, and how many reports never came.
ALTER TABLE recorded_tasks ADD COLUMN late_report BYTEA;
ALTER TABLE recorded_tasks ADD COLUMN dropped_reports BIGINT NOT NULL DEFAULT 0;
-- For the audit, which reads no history.
CREATE INDEX recorded_tasks_late ON recorded_tasks (task_id) WHERE late_report IS NOT NULL;
CREATE INDEX recorded_tasks_dropped ON recorded_tasks (task_id) WHERE dropped_reports > 0;
-- Live tasks whose cancel was requested: recorded work among them is to be stopped by its runtime.
CREATE INDEX tasks_to_stop ON tasks (id) WHERE cancel_requested_at IS NOT NULL AND ended_at IS NULL;
