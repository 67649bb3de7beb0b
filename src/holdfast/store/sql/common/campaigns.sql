-- name: insert_campaign
-- A new campaign; the same id or name again changes nothing.
INSERT INTO campaigns
VALUES (:id, :name, :owner, :spec, :created_at, :digest, :status, :items, :batches, :open_batches, :reason,
        :updated_at, :started_at, :ended_at, :ran_since)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: get_campaign
-- One campaign.
SELECT * FROM campaigns WHERE id = :id;

-- name: find_campaign
-- The campaign with this name.
SELECT * FROM campaigns WHERE name = :name;

-- name: lock_campaign
-- One campaign, locked until this transaction ends: nothing of it is started meanwhile.
SELECT * FROM campaigns WHERE id = :id;

-- name: share_campaign
-- One campaign that must not change until this transaction ends; several may share it.
SELECT * FROM campaigns WHERE id = :id;

-- name: find_campaigns
-- Ids that begin with a prefix; three are enough to know whether it is unique.
SELECT id, owner FROM campaigns WHERE id >= :low AND id < :high ORDER BY id LIMIT 3;

-- name: page_of_campaigns
-- Newest first, a page at a time.
SELECT * FROM campaigns WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: campaigns_in_status
-- Those in one status, oldest first.
SELECT * FROM campaigns WHERE status = :status AND id > :after ORDER BY id LIMIT :limit;

-- name: move_campaign
-- To another status, from any that the table allows.
UPDATE campaigns
   SET status = :to, reason = :reason, updated_at = :now,
       started_at = CASE WHEN :to = 'running' THEN COALESCE(started_at, :now) ELSE started_at END,
       ended_at = CASE WHEN :to IN ('done', 'failed') THEN CAST(:now AS bigint) ELSE NULL END,
       ran_since = CASE WHEN :to = 'running' THEN :now ELSE ran_since END
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: grow_campaign
-- Items were added; the caller holds the campaign.
UPDATE campaigns
   SET items = :items, batches = :batches, open_batches = :open_batches, updated_at = :now
 WHERE id = :id
RETURNING id;

-- name: insert_campaign_phase
-- One phase of a campaign, for views; the spec of the campaign is the truth.
INSERT INTO campaign_phases VALUES (:campaign_id, :number, :name, :role, :task, :stages);

-- name: insert_campaign_item
-- One item.
INSERT INTO campaign_items
VALUES (:campaign_id, :place, :item_id, :name, :priority, :category, :batch, :contents, :created_at, :digest);

-- name: items_by_ids
-- The items with these ids.
SELECT * FROM campaign_items WHERE campaign_id = :campaign_id AND item_id IN :ids[] ORDER BY place;

-- name: get_campaign_item
-- The item at a place.
SELECT * FROM campaign_items WHERE campaign_id = :campaign_id AND place = :place;

-- name: page_of_campaign_items
-- Items in their order, a page at a time.
SELECT * FROM campaign_items
 WHERE campaign_id = :campaign_id AND place > :after
 ORDER BY place LIMIT :limit;

-- name: items_of_batch
-- The items of one batch, in their order.
SELECT * FROM campaign_items
 WHERE campaign_id = :campaign_id AND batch = :batch AND place > :after
 ORDER BY place LIMIT :limit;

-- name: insert_item_phase
-- One item in one phase.
INSERT INTO item_phases (campaign_id, phase, place, priority, category, batch, status, unmet, attempt, updated_at)
VALUES (:campaign_id, :phase, :place, :priority, :category, :batch, :status, :unmet, 0, :updated_at);

-- name: startable_item_phases
-- The next item-phases of a phase to start with their items, the most urgent first, locked until this transaction ends.
SELECT item_phases.*, campaign_items.*
  FROM item_phases
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = 'pending'
   AND item_phases.unmet = 0
 ORDER BY item_phases.priority, item_phases.batch, item_phases.place LIMIT :limit;

-- name: next_item_phases
-- The same without locking them, to tell what is next.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = 'pending' AND unmet = 0
 ORDER BY priority, batch, place LIMIT :limit;

-- name: is_in_phase
-- Whether an item-phase of a phase is in a status.
SELECT 1 FROM item_phases WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status LIMIT 1;

-- name: start_item_phase
-- It has a slot, and its task is created or reopened in this transaction, which holds the row.
-- moves: item pending -> running
UPDATE item_phases
   SET status = 'running', task_id = :task_id, attempt = :attempt, note = :note, error = NULL, updated_at = :now,
       started_at = COALESCE(started_at, :now), ended_at = NULL,
       percent = CASE WHEN task_id = :task_id THEN percent ELSE 0 END,
       stage = CASE WHEN task_id = :task_id THEN stage ELSE :stage END,
       subtask = CASE WHEN task_id = :task_id THEN subtask END,
       items_total = CASE WHEN task_id = :task_id THEN items_total END,
       items_done = CASE WHEN task_id = :task_id THEN items_done END,
       items_failed = CASE WHEN task_id = :task_id THEN items_failed END,
       last_action = CASE WHEN task_id = :task_id THEN last_action END,
       last_action_at = CASE WHEN task_id = :task_id THEN last_action_at END
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status = 'pending';

-- name: item_phases_of_tasks
-- The item-phases of these tasks, in a fixed order, locked until this transaction ends.
SELECT * FROM item_phases WHERE task_id IN :ids[] ORDER BY campaign_id, phase, place;

-- name: look_at_item_phases_of_tasks
-- The same without locking them.
SELECT * FROM item_phases WHERE task_id IN :ids[] ORDER BY campaign_id, phase, place;

-- name: end_item_phase
-- Its task has ended; the transaction holds the row.
-- moves: item running|paused -> done|failed
UPDATE item_phases
   SET status = :to, summary = :summary, error = :error, goes_on = 0, updated_at = :now, ended_at = :now,
       percent = CASE WHEN :to = 'done' THEN 100 ELSE percent END,
       last_action = :last_action, last_action_at = :last_action_at
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status IN ('running', 'paused');

-- name: tasks_that_campaigns_need
-- Those of these tasks that are, or come from, the task of an item that is not done or whose campaign has not ended.
-- The same for tasks whose effects a restore keeps for the next task of an item.
WITH RECURSIVE tree (task_id, origin_id) AS (
  SELECT id, id FROM tasks WHERE id IN :ids[]
  UNION
  SELECT tree.task_id, tasks.parent_task_id FROM tree JOIN tasks ON tasks.id = tree.origin_id
   WHERE tasks.parent_task_id IS NOT NULL
)
SELECT tree.task_id
  FROM tree
  JOIN item_phases ON item_phases.task_id = tree.origin_id
  JOIN campaigns ON campaigns.id = item_phases.campaign_id
 WHERE item_phases.status <> 'done' OR campaigns.status NOT IN ('done', 'failed')
 UNION ALL
SELECT tree.task_id FROM tree
 WHERE EXISTS (SELECT 1 FROM campaign_kept_effects AS kept WHERE kept.task_id = tree.origin_id);

-- name: reopen_item_phase
-- An operator reopened its task.
-- moves: item failed|paused -> running
UPDATE item_phases
   SET status = 'running', error = NULL, goes_on = 0, updated_at = :now, ended_at = NULL
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status IN ('failed', 'paused');

-- name: note_item_phase
-- How far the task of an item is: its stage, its progress, and what it did last.
-- A percentage that the task reports itself goes before that of its plan.
UPDATE item_phases
   SET stage = COALESCE(:stage, stage),
       percent = CASE WHEN CAST(:own_percent AS bigint) IS NOT NULL THEN CAST(:own_percent AS bigint)
                      WHEN items_total IS NULL THEN COALESCE(:percent, percent) ELSE percent END,
       subtask = COALESCE(:subtask, subtask), items_total = COALESCE(:items_total, items_total),
       items_done = COALESCE(:items_done, items_done), items_failed = COALESCE(:items_failed, items_failed),
       last_action = COALESCE(:last_action, last_action), last_action_at = COALESCE(:last_action_at, last_action_at),
       note = COALESCE(:note, note), updated_at = :now
 WHERE task_id = :task_id AND status IN ('running', 'paused');

-- name: tell_step_of_item
-- The step that the task of an item saved last.
-- A newer one stays: a worker that was frozen may write this late.
UPDATE item_phases
   SET last_action = :name, last_action_at = :saved_at, updated_at = :now
 WHERE task_id = :task_id AND status IN ('running', 'paused')
   AND (last_action_at IS NULL OR last_action_at < :saved_at);

-- name: meet_phase_need
-- One of the phases that an item-phase needs is done.
UPDATE item_phases SET unmet = unmet - 1, updated_at = :now
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND unmet > 0;

-- name: lock_item_phases
-- The item-phases of a phase at these places, locked until this transaction ends.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase
   AND place IN (SELECT place FROM campaign_items WHERE campaign_id = :campaign_id AND item_id IN :ids[])
 ORDER BY place;

-- name: look_at_item_phases
-- The same without locking them.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase
   AND place IN (SELECT place FROM campaign_items WHERE campaign_id = :campaign_id AND item_id IN :ids[])
 ORDER BY place;

-- name: lock_item_phases_in_status
-- Some item-phases of a phase that are in a status, locked until this transaction ends.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
 ORDER BY place LIMIT :limit;

-- name: pause_item_phase
-- It starts no more; if its task runs, the task is asked to stop in this transaction, which holds the row.
-- moves: item pending|running|failed -> paused
UPDATE item_phases
   SET status = 'paused', goes_on = :goes_on, note = :note, updated_at = :now, ended_at = NULL
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place
   AND status IN ('pending', 'running', 'failed');

-- name: go_on_item_phase
-- A paused one is to be started again; its task goes on after its last saved step then.
-- moves: item paused -> pending
UPDATE item_phases
   SET status = 'pending', goes_on = 0, updated_at = :now
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status = 'paused';

-- name: item_phases_going_on
-- Those that were paused with their campaign, locked until this transaction ends.
SELECT * FROM item_phases WHERE campaign_id = :campaign_id AND goes_on = 1 ORDER BY phase, place LIMIT :limit;

-- name: retry_item_phase
-- It is to be started again; its task is reopened then, if it still exists.
-- moves: item failed -> pending
UPDATE item_phases
   SET status = 'pending', updated_at = :now
 WHERE campaign_id = :campaign_id AND phase = :phase AND place = :place AND status = 'failed';

-- name: page_of_item_phases
-- The item-phases of one phase, in the order of items.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND place > :after
 ORDER BY place LIMIT :limit;

-- name: page_of_item_phases_in_status
-- Those in one status.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
 ORDER BY place LIMIT :limit;

-- name: item_phases_at
-- All phases of one item.
SELECT item_phases.*
  FROM campaign_phases
  JOIN item_phases
    ON item_phases.campaign_id = campaign_phases.campaign_id AND item_phases.phase = campaign_phases.number
       AND item_phases.place = :place
 WHERE campaign_phases.campaign_id = :campaign_id
 ORDER BY campaign_phases.number;

-- name: item_phases_between
-- All phases of the items between two places.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND place >= :low AND place <= :high
 ORDER BY place;

-- name: insert_slot
-- One slot of a limit; an existing one stays as it is.
INSERT INTO campaign_slots VALUES (:campaign_id, :scope, :number, NULL) ON CONFLICT DO NOTHING;

-- name: free_slots
-- Free slots of one scope, locked until this transaction ends.
SELECT number FROM campaign_slots
 WHERE campaign_id = :campaign_id AND scope = :scope AND task_id IS NULL
 ORDER BY number LIMIT :limit;

-- name: take_slot
-- A task holds a slot from now on; the transaction holds the row.
UPDATE campaign_slots SET task_id = :task_id
 WHERE campaign_id = :campaign_id AND scope = :scope AND number = :number AND task_id IS NULL;

-- name: release_slots
-- The tasks have ended: what they hold is free.
UPDATE campaign_slots SET task_id = NULL WHERE task_id IS NOT NULL AND task_id IN :ids[];

-- name: taken_slots
-- How many slots of a scope are taken.
SELECT COUNT(*) FROM campaign_slots
 WHERE campaign_id = :campaign_id AND scope = :scope AND task_id IS NOT NULL;

-- name: has_slots
-- Whether a scope has slots.
SELECT 1 FROM campaign_slots WHERE campaign_id = :campaign_id AND scope = :scope LIMIT 1;

-- name: slots_of_tasks
-- The slots that these tasks hold.
SELECT campaign_id, scope, number, task_id FROM campaign_slots
 WHERE task_id IS NOT NULL AND task_id IN :ids[]
 ORDER BY campaign_id, scope, number;

-- name: release_slot
-- A task leaves one slot.
UPDATE campaign_slots SET task_id = NULL
 WHERE campaign_id = :campaign_id AND scope = :scope AND number = :number AND task_id = :task_id;

-- name: slot_holders
-- The slots that are taken, with their tasks.
SELECT scope, task_id FROM campaign_slots
 WHERE campaign_id = :campaign_id AND task_id IS NOT NULL
 ORDER BY scope, number LIMIT :limit;

-- name: counts_between
-- The counts whose names lie between two texts, in the order of their names.
SELECT noun, status, amount FROM counters
 WHERE noun >= :low AND noun < :high
 ORDER BY noun, status LIMIT :limit;
