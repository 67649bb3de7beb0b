-- name: insert_schedule
-- One schedule; a second insert finds the first.
INSERT INTO schedules
VALUES (:name, :source, :owner, :task_name, :spec, :revision, :created_at, :digest, :is_paused, :is_once,
        :since_at, :next_at, :due_at, :updated_at)
ON CONFLICT DO NOTHING
RETURNING name;

-- name: get_schedule
-- One schedule.
SELECT * FROM schedules WHERE name = :name;

-- name: get_schedules
-- Several schedules.
SELECT * FROM schedules WHERE name IN :names[] ORDER BY name;

-- name: lock_schedule
-- Let no other transaction fire or change it before this one ends.
UPDATE schedules SET revision = revision WHERE name = :name RETURNING *;

-- name: edit_schedule
-- A new definition, if no other edit came first.
UPDATE schedules
   SET owner = :owner, task_name = :task_name, spec = :spec, revision = :revision, digest = :digest,
       is_paused = :is_paused, is_once = :is_once, since_at = :since_at, next_at = :next_at, due_at = :due_at,
       updated_at = :updated_at
 WHERE name = :name AND revision = :expected
RETURNING name;

-- name: advance_schedule
-- Occurrences up to a moment are settled; nothing changes if another gateway was quicker or it was edited.
UPDATE schedules SET since_at = :since_at, next_at = :next_at, due_at = :due_at
 WHERE name = :name AND revision = :revision AND COALESCE(since_at, -1) = :before
RETURNING name;

-- name: delete_schedule
-- It fires no more; its history stays.
DELETE FROM schedules WHERE name = :name RETURNING name;

-- name: due_schedules
-- What is due, in order.
SELECT * FROM schedules
 WHERE due_at IS NOT NULL AND due_at <= :now AND (due_at > :after_at OR (due_at = :after_at AND name > :after))
 ORDER BY due_at, name LIMIT :limit;

-- name: next_due_schedule
-- When the next one is due.
SELECT due_at FROM schedules WHERE due_at IS NOT NULL AND due_at > :now ORDER BY due_at LIMIT 1;

-- name: schedules_ahead
-- Schedules whose settled time is in the future: a clock was ahead.
SELECT * FROM schedules WHERE since_at IS NOT NULL AND since_at > :moment ORDER BY since_at, name LIMIT :limit;

-- name: page_of_schedules
-- By name.
SELECT * FROM schedules WHERE name > :after ORDER BY name LIMIT :limit;

-- name: page_of_schedules_of_owner
-- Those of one owner, by name.
SELECT * FROM schedules WHERE owner = :owner AND name > :after ORDER BY name LIMIT :limit;

-- name: count_schedules
-- How many there are, and how many of them have a next occurrence.
SELECT count(*), count(due_at) FROM schedules;

-- name: newest_change_of_schedules
-- When one was changed last.
SELECT updated_at FROM schedules ORDER BY updated_at DESC, name DESC LIMIT 1;

-- name: count_schedules_of_owner
-- How many schedules of an owner, made at run time, may still fire, now or after a resume.
SELECT count(*) FROM schedules
 WHERE owner = :owner AND source = 'runtime' AND NOT (is_once = 1 AND due_at IS NULL AND is_paused = 0);

-- name: schedules_over
-- One-shots of run time that fired long ago.
SELECT name FROM schedules
 WHERE source = 'runtime' AND is_once = 1 AND due_at IS NULL AND is_paused = 0 AND since_at <= :older_than
   AND NOT EXISTS (SELECT 1 FROM firings WHERE firings.schedule = schedules.name
                      AND firings.status IN ('due', 'running', 'requeued'))
 ORDER BY since_at, name LIMIT :limit;

-- name: declare_schedule
-- The settings of a gateway have it.
INSERT INTO schedule_declarations VALUES (:name, :place, :target, :declared_at, :seen_at)
ON CONFLICT (name, place) DO UPDATE SET target = excluded.target, seen_at = excluded.seen_at;

-- name: declarations_of_names
-- Which gateways have these schedules in their settings.
SELECT * FROM schedule_declarations WHERE name IN :names[] ORDER BY name, place;

-- name: declarations_at_place
-- What the settings of a gateway had.
SELECT * FROM schedule_declarations WHERE place = :place ORDER BY name;

-- name: withdraw_declaration
-- The settings of a gateway no longer have it.
DELETE FROM schedule_declarations WHERE name = :name AND place = :place;

-- name: withdraw_declarations
-- No gateway is taken to have it.
DELETE FROM schedule_declarations WHERE name = :name;

-- name: see_declarations
-- The gateway is still there.
UPDATE schedule_declarations SET seen_at = :now WHERE place = :place;
