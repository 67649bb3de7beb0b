-- name: items_of_batch
-- The items of one batch, in their order.
-- Differs: without statistics SQLite prefers the primary key, and would read all items.
SELECT * FROM campaign_items INDEXED BY campaign_items_by_batch
 WHERE campaign_id = :campaign_id AND batch = :batch AND place > :after
 ORDER BY place LIMIT :limit;

-- name: items_by_ids
-- The items with these ids.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole campaign.
SELECT * FROM campaign_items INDEXED BY campaign_items_by_id WHERE campaign_id = :campaign_id AND item_id IN :ids[] ORDER BY place;

-- name: lock_item_phases_in_status
-- Some item-phases of a phase that are in a status, locked until this transaction ends.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT * FROM item_phases INDEXED BY item_phases_by_status
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
 ORDER BY place LIMIT :limit;

-- name: page_of_item_phases_in_status
-- Those in one status.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT * FROM item_phases INDEXED BY item_phases_by_status
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
 ORDER BY place LIMIT :limit;

-- name: item_phases_going_on
-- Those that were paused with their campaign, locked until this transaction ends.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole campaign.
SELECT * FROM item_phases INDEXED BY item_phases_going_on WHERE campaign_id = :campaign_id AND goes_on = 1 ORDER BY phase, place LIMIT :limit;

-- name: free_slots
-- Free slots of one scope, locked until this transaction ends.
-- Differs: without statistics SQLite prefers the primary key, and would read the taken slots, too.
SELECT number FROM campaign_slots INDEXED BY campaign_slots_free
 WHERE campaign_id = :campaign_id AND scope = :scope AND task_id IS NULL
 ORDER BY number LIMIT :limit;
