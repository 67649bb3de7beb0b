-- name: last_actions_of_items
-- The items that changed last, with the step that each has saved last.
-- Differs: without statistics SQLite prefers the primary key, and would read the whole campaign.
SELECT item_phases.*, campaign_items.item_id
  FROM item_phases INDEXED BY item_phases_by_change
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.last_action_at IS NOT NULL
 ORDER BY item_phases.updated_at DESC, item_phases.phase, item_phases.place LIMIT :limit;
