-- name: claim_checkpoints
-- Claim the most urgent paused checkpoints, except those that wait for a wake or until this boot has ended.
-- Differs: SQLite would use the index by status and sort all paused checkpoints for every batch.
-- moves: checkpoint paused_for_restart -> resuming
UPDATE run_checkpoints
   SET status = 'resuming', token = :token, claimed_by = :boot_id, lease_until = :now + :lease,
       attempts = attempts + 1, updated_at = :now
 WHERE id IN (
         SELECT id FROM run_checkpoints INDEXED BY run_checkpoints_resumable
          WHERE status = 'paused_for_restart' AND wake_id IS NULL AND (claimed_by IS NULL OR claimed_by <> :boot_id)
          ORDER BY priority, created_at, id
          LIMIT :limit
       )
   AND status = 'paused_for_restart'
RETURNING *;
