-- name: insert_restart
-- A gateway is about to stop, or was found stopped; the same id again changes nothing.
INSERT INTO restarts
VALUES (:id, :boot_id, :place, :requested_at, :manifest, :digest, :status, :triggers, :outcome, :recovered_by,
        :updated_at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get_restart
-- One restart.
SELECT * FROM restarts WHERE id = :id;

-- name: move_restart
-- To another status, from any that the table allows.
UPDATE restarts SET status = :to, updated_at = :now
 WHERE id = :id AND status IN :sources[]
RETURNING *;

-- name: save_outcome
-- The outcome of a restart.
UPDATE restarts SET outcome = :outcome, recovered_by = :recovered_by, updated_at = :now
 WHERE id = :id
RETURNING *;

-- name: save_triggers
-- Another reason for a restart that has begun.
UPDATE restarts SET triggers = :triggers, updated_at = :now
 WHERE id = :id AND status = 'draining'
RETURNING *;

-- name: save_manifest
-- A manifest with more interruptions, if the restart has not changed since it was read.
UPDATE restarts SET manifest = :manifest, digest = :digest, updated_at = :updated_at
 WHERE id = :id AND digest = :digest_before AND status = 'draining'
RETURNING *;

-- name: open_restarts
-- Restarts from which some gateway must still recover, oldest first.
SELECT * FROM restarts WHERE status IN ('draining', 'drained') ORDER BY id LIMIT :limit;

-- name: restarts_page
-- Before an id, newest first.
SELECT * FROM restarts WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: restarts_to_prune
-- Old settled restarts, oldest first; never the last one, which operators look at.
SELECT id FROM restarts
 WHERE status IN ('blocked', 'recovered') AND updated_at <= :older_than
   AND id < (SELECT MAX(newest.id) FROM restarts AS newest)
 ORDER BY updated_at, id LIMIT :limit;

-- name: delete_restarts
-- Retention.
DELETE FROM restarts WHERE id IN :ids[] AND status IN ('blocked', 'recovered') RETURNING id;
