-- name: insert_audit_entry
-- One audit entry; the same id again changes nothing.
INSERT INTO audit_log
VALUES (:id, :at, :who, :door, :address, :action, :subject, :outcome, :why, :times, :digest)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: audit_page
-- Before an id, newest first.
SELECT * FROM audit_log WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: audit_page_of_who
-- The same for one actor.
SELECT * FROM audit_log WHERE who = :value AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: audit_page_of_action
-- The same for one action.
SELECT * FROM audit_log WHERE action = :value AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: audit_page_of_subject
-- The same for one record.
SELECT * FROM audit_log WHERE subject = :value AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: audit_to_prune
-- Entries that are old enough to be deleted, oldest first; ids sort by time.
SELECT id FROM audit_log WHERE id < :before ORDER BY id LIMIT :limit;

-- name: delete_audit_entries
-- Retention.
DELETE FROM audit_log WHERE id IN :ids[] RETURNING id;
