-- name: insert_campaign_checkpoint
-- A new checkpoint of a campaign; if its id or its number is taken, nothing changes.
INSERT INTO campaign_checkpoints
VALUES (:id, :campaign_id, :number, :kind, :name, :phase, :batch, :items, :recoverable, :summary, :created_at, :digest)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: insert_campaign_checkpoint_places
-- Which items were done in one phase.
INSERT INTO campaign_checkpoint_places VALUES (:checkpoint_id, :phase, :places, :digest);

-- name: get_campaign_checkpoint
-- One checkpoint of a campaign.
SELECT * FROM campaign_checkpoints WHERE id = :id;

-- name: find_campaign_checkpoints
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, campaign_id FROM campaign_checkpoints WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: latest_campaign_checkpoint
-- The last checkpoint of a campaign.
SELECT * FROM campaign_checkpoints WHERE campaign_id = :campaign_id ORDER BY number DESC LIMIT 1;

-- name: page_of_campaign_checkpoints
-- Those of one campaign, newest first.
SELECT * FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND number < :before
 ORDER BY number DESC LIMIT :limit;

-- name: page_of_campaign_checkpoints_of_kind
-- Those of one campaign and kind, newest first.
SELECT * FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND kind = :kind AND number < :before
 ORDER BY number DESC LIMIT :limit;

-- name: page_of_all_campaign_checkpoints
-- Those of all campaigns, newest first.
SELECT * FROM campaign_checkpoints
 WHERE (created_at, id) < (:before_at, :before_id)
 ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: places_of_campaign_checkpoint
-- Which items were done in one phase.
SELECT * FROM campaign_checkpoint_places WHERE checkpoint_id = :checkpoint_id AND phase = :phase;

-- name: kept_campaign_checkpoint
-- The oldest one of a kind that is kept; those before it are pruned.
SELECT number FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND kind = :kind
 ORDER BY number DESC LIMIT 1 OFFSET :kept;

-- name: delete_surplus_campaign_checkpoints
-- Those of a kind up to a number; never milestones, which have places.
DELETE FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND kind = :kind AND kind <> 'milestone' AND number <= :number
RETURNING id;

-- name: campaign_checkpoints_to_prune
-- Those of one campaign that are older than a moment, oldest first; never the last one, nor one that a restore needs.
SELECT id FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND created_at < :older_than
   AND number < (SELECT MAX(number) FROM campaign_checkpoints WHERE campaign_id = :campaign_id)
   AND id NOT IN (SELECT checkpoint_id FROM campaign_restores
                   WHERE campaign_id = :campaign_id AND ended_at IS NULL)
 ORDER BY number LIMIT :limit;

-- name: campaign_checkpoints_of_kind_to_prune
-- The same for one kind.
SELECT id FROM campaign_checkpoints
 WHERE campaign_id = :campaign_id AND kind = :kind AND created_at < :older_than
   AND number < (SELECT MAX(number) FROM campaign_checkpoints WHERE campaign_id = :campaign_id)
   AND id NOT IN (SELECT checkpoint_id FROM campaign_restores
                   WHERE campaign_id = :campaign_id AND ended_at IS NULL)
 ORDER BY number LIMIT :limit;

-- name: delete_campaign_checkpoints
-- An operator prunes these.
DELETE FROM campaign_checkpoints WHERE id IN :ids[];

-- name: delete_campaign_checkpoint_places
-- Their records of what was done.
DELETE FROM campaign_checkpoint_places WHERE checkpoint_id IN :ids[];

-- name: done_places
-- Where items are done in one phase, in order.
SELECT place FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = 'done' AND place > :after
 ORDER BY place LIMIT :limit;

-- name: batches_done_since
-- The batches of items that were done lately, the last ones first.
SELECT phase, batch, updated_at FROM item_phases
 WHERE campaign_id = :campaign_id AND updated_at >= :since AND status = 'done'
 ORDER BY updated_at DESC, phase, place LIMIT :limit;

-- name: last_actions_of_items
-- The items that changed last, with the step that each has saved last.
SELECT item_phases.*, campaign_items.item_id
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.last_action_at IS NOT NULL
 ORDER BY item_phases.updated_at DESC, item_phases.phase, item_phases.place LIMIT :limit;

-- name: insert_campaign_save
-- The first row of a campaign; an existing one stays as it is.
INSERT INTO campaign_saves
VALUES (:campaign_id, :number, :checkpoint_id, :marks, :wanted, :updated_at)
ON CONFLICT DO NOTHING;

-- name: lock_campaign_save
-- What the checkpoints of a campaign have covered, locked until this transaction ends.
SELECT * FROM campaign_saves WHERE campaign_id = :campaign_id;

-- name: get_campaign_save
-- The same without a lock.
SELECT * FROM campaign_saves WHERE campaign_id = :campaign_id;

-- name: set_campaign_save
-- A checkpoint was saved; the transaction holds the row.
UPDATE campaign_saves
   SET number = :number, checkpoint_id = :checkpoint_id, marks = :marks, wanted = :wanted, updated_at = :updated_at
 WHERE campaign_id = :campaign_id;

-- name: want_campaign_save
-- Another checkpoint is needed; the last reason counts.
INSERT INTO campaign_saves
VALUES (:campaign_id, 0, NULL, :marks, :wanted, :now)
ON CONFLICT (campaign_id) DO UPDATE SET wanted = excluded.wanted;

-- name: campaigns_wanting_saves
-- Campaigns that need another checkpoint.
SELECT campaign_id FROM campaign_saves
 WHERE wanted IS NOT NULL AND campaign_id > :after
 ORDER BY campaign_id LIMIT :limit;

-- name: open_campaign_restore
-- The restore of a campaign that has not ended.
SELECT * FROM campaign_restores WHERE campaign_id = :campaign_id AND ended_at IS NULL;

-- name: lock_campaign_restore
-- The same, locked until this transaction ends.
SELECT * FROM campaign_restores WHERE campaign_id = :campaign_id AND ended_at IS NULL;

-- name: get_campaign_restore
-- One restore of a campaign.
SELECT * FROM campaign_restores WHERE campaign_id = :campaign_id AND number = :number;

-- name: last_campaign_restore
-- The number of the last restore of a campaign.
SELECT number FROM campaign_restores WHERE campaign_id = :campaign_id ORDER BY number DESC LIMIT 1;

-- name: insert_campaign_restore
-- A restore begins; the transaction holds the campaign.
INSERT INTO campaign_restores
VALUES (:campaign_id, :number, :checkpoint_id, :effects, :goes_on, :phase, :place, :undone, :started_at, :updated_at,
        :ended_at);

-- name: set_campaign_restore
-- How far a restore has come; the transaction holds it.
UPDATE campaign_restores
   SET effects = :effects, goes_on = :goes_on, phase = :phase, place = :place, undone = :undone,
       updated_at = :updated_at, ended_at = :ended_at
 WHERE campaign_id = :campaign_id AND number = :number;

-- name: keep_effects_of_task
-- The next task of an item finds the effects of this one as done.
INSERT INTO campaign_kept_effects VALUES (:campaign_id, :phase, :place, :task_id);

-- name: kept_effects_at
-- The task whose effects the next task of an item finds as done.
SELECT task_id FROM campaign_kept_effects WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place;

-- name: forget_kept_effects
-- They are copied, or another restore decides.
DELETE FROM campaign_kept_effects WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place;

-- name: touched_item_phases
-- Items of one phase that have, or had, a task, in the order of items.
-- One that failed before it got a new task still has the task whose effects it was to find as done.
SELECT item_phases.place, item_phases.status, COALESCE(item_phases.task_id, kept.task_id)
  FROM item_phases
  LEFT JOIN campaign_kept_effects AS kept
    ON kept.campaign_id = item_phases.campaign_id AND kept.phase = item_phases.phase
       AND kept.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.place > :after
   AND (item_phases.status IN ('running', 'done', 'failed') OR item_phases.task_id IS NOT NULL)
 ORDER BY item_phases.place LIMIT :limit;

-- name: item_phases_that_may_run
-- Items of one phase whose task, or a task that this one started, may not have ended.
SELECT place, task_id FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND place > :after AND task_id IS NOT NULL
   AND status IN ('pending', 'running', 'paused', 'failed')
 ORDER BY place LIMIT :limit;

-- name: lock_item_phases_at
-- These items of one phase, locked until this transaction ends.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND place >= :low AND place <= :high
   AND CAST(place AS text) IN :places[]
 ORDER BY place;

-- name: undo_item_phase
-- It was not done at the milestone: it is to be started again, as a new task.
-- moves: item done|failed -> pending
UPDATE item_phases
   SET status = 'pending', task_id = NULL, summary = NULL, error = NULL, note = :note, updated_at = :now,
       started_at = NULL, ended_at = NULL, stage = NULL, percent = 0, subtask = NULL, items_total = NULL,
       items_done = NULL, items_failed = NULL, last_action = NULL, last_action_at = NULL
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status IN ('done', 'failed');

-- name: forget_task_of_item_phase
-- It would go on with a task that it did not have at the milestone: when it starts, it gets a new one.
UPDATE item_phases
   SET task_id = NULL, error = NULL, note = :note, updated_at = :now, started_at = NULL, ended_at = NULL
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status IN ('pending', 'paused');

-- name: add_phase_need
-- A phase that it needs is no longer done.
UPDATE item_phases SET unmet = unmet + 1, updated_at = :now
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place;
