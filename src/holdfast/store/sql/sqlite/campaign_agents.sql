-- name: page_of_agents_in_status
-- Those whose item is in one status.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole phase.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases INDEXED BY item_phases_by_status
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;
