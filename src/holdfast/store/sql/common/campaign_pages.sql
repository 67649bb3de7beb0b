-- name: page_of_phase
-- Item-phases of one phase with the ids and names of their items, in the order of items.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.place > :after
   AND (CAST(:priority AS text) IS NULL OR item_phases.priority = :priority)
   AND (CAST(:category AS text) IS NULL OR COALESCE(item_phases.category, '') = :category)
 ORDER BY item_phases.place LIMIT :limit;

-- name: page_of_phase_in_status
-- Those in one status, through the index item_phases_by_status.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
   AND (CAST(:priority AS text) IS NULL OR item_phases.priority = :priority)
   AND (CAST(:category AS text) IS NULL OR COALESCE(item_phases.category, '') = :category)
 ORDER BY item_phases.place LIMIT :limit;

-- name: page_of_phase_batch
-- Those of one batch, through the index campaign_items_by_batch.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM campaign_items
  JOIN item_phases
    ON item_phases.campaign_id = campaign_items.campaign_id AND item_phases.phase = :phase
       AND item_phases.place = campaign_items.place
 WHERE campaign_items.campaign_id = :campaign_id AND campaign_items.batch = :batch
   AND campaign_items.place > :after
   AND (CAST(:status AS text) IS NULL OR item_phases.status = :status)
   AND (CAST(:category AS text) IS NULL OR COALESCE(item_phases.category, '') = :category)
 ORDER BY campaign_items.place LIMIT :limit;

-- name: item_phase_at_rank
-- The item-phase that stands so many places further on among those in one status.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase
   AND item_phases.place = (
         SELECT place FROM item_phases
          WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
          ORDER BY place LIMIT 1 OFFSET :skipped
       );

-- name: last_change_of_items
-- When an item of the campaign last changed.
SELECT MAX(updated_at) FROM item_phases WHERE campaign_id = :campaign_id;

-- name: page_of_campaigns_in_status
-- Those in one status, newest first.
SELECT * FROM campaigns WHERE status = :status AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_campaigns_of_owner
-- Those of one owner, newest first.
SELECT * FROM campaigns WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: page_of_campaigns_of_owner_in_status
-- Those of one owner in one status, newest first.
SELECT * FROM campaigns
 WHERE owner = :owner AND status = :status AND id < :before
 ORDER BY id DESC LIMIT :limit;
