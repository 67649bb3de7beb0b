-- name: insert_alert
-- A new alert; if one of this rule and subject is not cleared yet, nothing changes.
INSERT INTO alerts
VALUES (:id, :rule, :kind, :subject, :subject_name, :severity, :condition, :figures, :problem, :raised_at, :digest,
        :status, :why_cleared, :updated_at, :cleared_at)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: get_alert
-- One alert.
SELECT * FROM alerts WHERE id = :id;

-- name: find_alert
-- The alert of this rule and subject that is not cleared yet.
SELECT * FROM alerts
 WHERE rule = :rule AND kind = :kind AND subject = :subject AND status IN ('raised', 'silenced');

-- name: find_alerts
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, rule FROM alerts WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: move_alert
-- To another status, from any that the table allows.
UPDATE alerts
   SET status = :to, why_cleared = :why, updated_at = :now,
       cleared_at = CASE WHEN :to = 'cleared' THEN CAST(:now AS bigint) ELSE NULL END
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: live_alerts
-- Those that are not cleared yet.
SELECT * FROM alerts
 WHERE status IN ('raised', 'silenced') AND (rule, kind, subject) > (:rule, :kind, :subject)
 ORDER BY rule, kind, subject LIMIT :limit;

-- name: live_alerts_of
-- Those of one subject, oldest first.
SELECT * FROM alerts
 WHERE subject = :subject AND status IN ('raised', 'silenced')
 ORDER BY id LIMIT :limit;

-- name: page_of_alerts
-- All alerts, newest first, a page at a time.
SELECT * FROM alerts WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_alerts_of_rule
-- Those of one rule, newest first, a page at a time.
SELECT * FROM alerts WHERE rule = :rule AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: delete_old_alerts
-- Alerts that were cleared before then, oldest first.
DELETE FROM alerts
 WHERE id IN (SELECT id FROM alerts WHERE cleared_at < :before ORDER BY cleared_at, id LIMIT :limit)
RETURNING id, status;

-- name: delete_actions_of_alerts
-- The actions of alerts that were deleted.
DELETE FROM alert_actions WHERE alert_id IN :ids[];

-- name: insert_alert_action
-- An action to be done; one that is there already stays as it is.
INSERT INTO alert_actions
VALUES (:alert_id, :action, :status, :attempts, :due_at, :outcome, :updated_at)
ON CONFLICT DO NOTHING
RETURNING alert_id;

-- name: actions_of_alerts
-- The actions of these alerts.
SELECT * FROM alert_actions WHERE alert_id IN :ids[] ORDER BY alert_id, action;

-- name: due_alert_actions
-- Actions to be done now; those of a silenced alert wait.
SELECT alert_actions.*
  FROM alert_actions
  JOIN alerts ON alerts.id = alert_actions.alert_id
 WHERE alert_actions.status = 'pending' AND alert_actions.due_at <= :now AND alerts.status <> 'silenced'
 ORDER BY alert_actions.due_at, alert_actions.alert_id, alert_actions.action LIMIT :limit;

-- name: end_alert_action
-- Record how an action ended; nothing changes if another gateway has recorded it.
-- moves: action pending -> done|failed|skipped
UPDATE alert_actions
   SET status = :to, attempts = attempts + 1, outcome = :outcome, updated_at = :now
 WHERE alert_id = :alert_id AND action = :action AND status = 'pending'
RETURNING *;

-- name: put_off_alert_action
-- It is to be tried again later; `attempts` tells that no other gateway has tried it meanwhile.
UPDATE alert_actions
   SET attempts = attempts + :failed, due_at = :due_at, outcome = :outcome, updated_at = :now
 WHERE alert_id = :alert_id AND action = :action AND status = 'pending' AND attempts = :attempts
RETURNING *;

-- name: alert_verdicts
-- All verdicts that are remembered.
SELECT * FROM alert_verdicts
 WHERE (rule, kind, subject) > (:rule, :kind, :subject)
 ORDER BY rule, kind, subject LIMIT :limit;

-- name: insert_alert_verdict
-- A verdict that was not remembered.
INSERT INTO alert_verdicts
VALUES (:rule, :kind, :subject, :digest, :place, :is_true, :since_at, :revision, :seen_at)
ON CONFLICT DO NOTHING
RETURNING revision;

-- name: change_alert_verdict
-- A verdict turned, or another gateway watches it; nothing changes if it is not as it was seen.
UPDATE alert_verdicts
   SET digest = :digest, place = :place, is_true = :is_true, since_at = :since_at, revision = revision + 1,
       seen_at = :seen_at
 WHERE rule = :rule AND kind = :kind AND subject = :subject AND revision = :revision
RETURNING revision;

-- name: delete_alert_verdict
-- A verdict with nothing to remember; nothing changes if it is not as it was seen.
DELETE FROM alert_verdicts
 WHERE rule = :rule AND kind = :kind AND subject = :subject AND revision = :revision
RETURNING revision;

-- name: see_alert_verdicts
-- The gateway at this place still watches its verdicts.
UPDATE alert_verdicts SET seen_at = :now WHERE place = :place AND seen_at < :before;

-- name: set_alert_silence
-- A rule is silent until then; a later silence replaces the one before.
INSERT INTO alert_silences VALUES (:rule, :until_at, :silenced_by, :reason, :created_at)
ON CONFLICT (rule) DO UPDATE
   SET until_at = excluded.until_at, silenced_by = excluded.silenced_by, reason = excluded.reason,
       created_at = excluded.created_at;

-- name: delete_alert_silences
-- Silences that are over.
DELETE FROM alert_silences WHERE until_at <= :now;

-- name: alert_silences
-- All silences that are not deleted.
SELECT * FROM alert_silences ORDER BY rule LIMIT :limit;

-- name: last_change_of_campaign
-- When an item of a campaign last changed in a phase.
SELECT updated_at FROM item_phases
 WHERE campaign_id = :campaign_id
 ORDER BY updated_at DESC, phase, place LIMIT 1;

-- name: unheard_runs_of_campaign
-- The running runs of a campaign that gave no sign of life for the longest, with their tasks.
-- (Only tasks that hold a slot are looked at: it costs as much as the limit of the campaign allows to run.)
SELECT runs.task_id, runs.id, COALESCE(runs.beat_at, runs.updated_at) AS heard_at
  FROM campaign_slots
  JOIN runs ON runs.task_id = campaign_slots.task_id AND runs.status = 'running'
 WHERE campaign_slots.campaign_id = :campaign_id AND campaign_slots.scope = 'campaign'
   AND campaign_slots.task_id IS NOT NULL
 ORDER BY heard_at, runs.id LIMIT :limit;

-- name: oldest_ready_run
-- When the run of one priority that waits longest for a worker became due.
SELECT due_at FROM runs
 WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0 AND priority = :priority
 ORDER BY due_at, id LIMIT 1;
