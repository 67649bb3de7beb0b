-- name: lock_campaign_save
-- What the checkpoints of a campaign have covered, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM campaign_saves WHERE campaign_id = :campaign_id FOR UPDATE;

-- name: lock_campaign_restore
-- The restore of a campaign that has not ended, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM campaign_restores WHERE campaign_id = :campaign_id AND ended_at IS NULL FOR UPDATE;

-- name: lock_item_phases_at
-- These items of one phase, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the rows are locked.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND place >= :low AND place <= :high
   AND CAST(place AS text) IN :places[]
 ORDER BY place
   FOR NO KEY UPDATE;
