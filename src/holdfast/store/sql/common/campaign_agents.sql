-- name: page_of_agents
-- The agents of one phase, in the order of items: each row has the item-phase, then the id and the name of its item.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;

-- name: page_of_agents_in_status
-- Those whose item is in one status.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM item_phases
  JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = :status
   AND item_phases.place > :after
 ORDER BY item_phases.place LIMIT :limit;

-- name: agent_of_item
-- The agent of one item in one phase.
SELECT item_phases.*, campaign_items.item_id, campaign_items.name
  FROM campaign_items
  JOIN item_phases
    ON item_phases.campaign_id = campaign_items.campaign_id AND item_phases.place = campaign_items.place
 WHERE campaign_items.campaign_id = :campaign_id AND campaign_items.item_id = :item_id
   AND item_phases.phase = :phase;

-- name: carriers_of_campaign
-- The processes that claimed the running runs of a campaign: how many runs, the last sign of life, and the last lease.
-- Only tasks that hold a slot are looked at: what it costs grows with the limit of the campaign, not with its items.
SELECT runs.claimed_by, COUNT(*), MAX(COALESCE(runs.beat_at, runs.updated_at)), MAX(runs.lease_until)
  FROM campaign_slots
  JOIN runs ON runs.task_id = campaign_slots.task_id AND runs.status = 'running' AND runs.ended_at IS NULL
 WHERE campaign_slots.campaign_id = :campaign_id AND campaign_slots.scope = 'campaign'
   AND campaign_slots.task_id IS NOT NULL AND runs.claimed_by IS NOT NULL
 GROUP BY runs.claimed_by ORDER BY runs.claimed_by;

-- name: oldest_heartbeat_of_campaign
-- The running run of a campaign that was renewed longest ago.
-- Only tasks that hold a slot are looked at: what it costs grows with the limit of the campaign, not with its items.
SELECT runs.task_id, COALESCE(runs.beat_at, runs.updated_at) AS heard_at
  FROM campaign_slots
  JOIN runs ON runs.task_id = campaign_slots.task_id AND runs.status = 'running' AND runs.ended_at IS NULL
 WHERE campaign_slots.campaign_id = :campaign_id AND campaign_slots.scope = 'campaign'
   AND campaign_slots.task_id IS NOT NULL
 ORDER BY heard_at, runs.task_id LIMIT 1;
