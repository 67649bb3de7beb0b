-- name: page_of_phase_in_status
-- Those in one status, through the index item_phases_by_status.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases INDEXED BY item_phases_by_status
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
   AND (CAST(:priority AS text) IS NULL OR item_phases.priority = :priority)
   AND (CAST(:category AS text) IS NULL OR COALESCE(item_phases.category, '') = :category)
 ORDER BY item_phases.place LIMIT :limit;

-- name: page_of_phase_batch
-- Those of one batch, through the index campaign_items_by_batch.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole campaign.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM campaign_items INDEXED BY campaign_items_by_batch
  JOIN item_phases
    ON item_phases.campaign_id = campaign_items.campaign_id AND item_phases.phase = :phase
       AND item_phases.place = campaign_items.place
 WHERE campaign_items.campaign_id = :campaign_id AND campaign_items.batch = :batch
   AND campaign_items.place > :after
   AND (CAST(:status AS text) IS NULL OR item_phases.status = :status)
   AND (CAST(:category AS text) IS NULL OR COALESCE(item_phases.category, '') = :category)
 ORDER BY campaign_items.place LIMIT :limit;
