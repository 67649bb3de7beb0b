-- name: items_of_phase_in_status
-- The item-phases of one phase that are in one status, in the order of items.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases INDEXED BY item_phases_by_status
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;

-- name: failures_by_day
-- How many items of one phase have failed on each day, as days since 1970.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT ended_at / 86400000000 AS day, COUNT(*) FROM item_phases INDEXED BY item_phases_by_status
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = 'failed' AND ended_at IS NOT NULL
 GROUP BY ended_at / 86400000000
 ORDER BY day DESC LIMIT :limit;

-- name: failures_between
-- The item-phases of one phase that failed between two times, the newest first.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name, campaign_items.created_at
  FROM item_phases INDEXED BY item_phases_by_status
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = 'failed'
   AND item_phases.ended_at >= :since AND item_phases.ended_at < :until
 ORDER BY item_phases.ended_at DESC, item_phases.place DESC LIMIT :limit;
