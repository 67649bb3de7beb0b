-- name: changed_items
-- Item-phases that have begun, in the order in which they changed, after a time and a key.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.attempt > 0
   AND (item_phases.updated_at, item_phases.phase, item_phases.place) > (:updated_at, :phase, :place)
 ORDER BY item_phases.updated_at, item_phases.phase, item_phases.place LIMIT :limit;

-- name: begun_phases_of_items
-- The item-phases of these items that have begun. SQLite joins in this order, and so finds the items by their ids.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM campaign_items CROSS JOIN campaign_phases CROSS JOIN item_phases
 WHERE campaign_items.campaign_id = :campaign_id AND campaign_items.item_id IN :ids[]
   AND campaign_phases.campaign_id = campaign_items.campaign_id
   AND item_phases.campaign_id = campaign_items.campaign_id AND item_phases.phase = campaign_phases.number
   AND item_phases.place = campaign_items.place AND item_phases.attempt > 0
 ORDER BY item_phases.place, item_phases.phase;

-- name: items_of_phase_in_status
-- The item-phases of one phase that are in one status, in the order of items.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;

-- name: items_of_phase_in_order
-- The item-phases of one phase, in the order of items.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;

-- name: newest_checkpoints_of_tasks
-- The last checkpoint of each of these tasks.
SELECT task_id, MAX(id) FROM run_checkpoints WHERE task_id IN :ids[] GROUP BY task_id ORDER BY task_id;

-- name: failures_by_day
-- How many items of one phase have failed on each day, as days since 1970.
SELECT ended_at / 86400000000 AS day, COUNT(*) FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = 'failed' AND ended_at IS NOT NULL
 GROUP BY ended_at / 86400000000
 ORDER BY day DESC LIMIT :limit;

-- name: failures_between
-- The item-phases of one phase that failed between two times, the newest first.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = 'failed'
   AND item_phases.ended_at >= :since AND item_phases.ended_at < :until
 ORDER BY item_phases.ended_at DESC, item_phases.place DESC LIMIT :limit;

-- name: newest_events_of_campaign
-- The last events of one campaign itself, newest first, through the index ledger_events_of_campaigns.
SELECT 0, position, at, kind, task_id, subject_id, facts FROM ledger_events
 WHERE subject_id = :campaign_id AND subject_id >= 'camp_' AND subject_id < 'camp`'
 ORDER BY position DESC LIMIT :limit;
