-- name: save_start
-- What a process found and did so far when it started.
INSERT INTO starts VALUES (:boot_id, :role, :host, :pid, :began_at, :steps, :ended_at)
ON CONFLICT (boot_id) DO UPDATE SET steps = excluded.steps, ended_at = excluded.ended_at;

-- name: get_start
-- The start of one process.
SELECT * FROM starts WHERE boot_id = :boot_id;

-- name: find_starts
-- Starts whose boots begin with a prefix; three are enough to know whether it is unique.
SELECT boot_id, role FROM starts WHERE boot_id >= :low AND boot_id < :high ORDER BY boot_id LIMIT 3;

-- name: page_of_starts
-- Newest first, a page at a time.
SELECT * FROM starts WHERE boot_id < :before ORDER BY boot_id DESC LIMIT :limit;

-- name: page_of_starts_in_role
-- Those of one kind of process.
SELECT * FROM starts WHERE role = :role AND boot_id < :before ORDER BY boot_id DESC LIMIT :limit;

-- name: delete_old_starts
-- Retention: starts of long ago; the newest of each kind of process stays.
DELETE FROM starts
 WHERE began_at <= :older_than AND boot_id NOT IN (SELECT MAX(boot_id) FROM starts GROUP BY role);
