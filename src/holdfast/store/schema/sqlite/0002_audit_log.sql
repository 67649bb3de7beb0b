-- The audit log: who did what, through which door, and what came of it.
-- A row is inserted once, deleted by retention, and never updated.
CREATE TABLE audit_log (
  id      TEXT PRIMARY KEY,
  at      INTEGER NOT NULL,
  who     TEXT NOT NULL,
  door    TEXT NOT NULL
    CHECK (door IN ('command', 'socket', 'http', 'websocket', 'channel', 'gateway')),
  address TEXT,
  action  TEXT NOT NULL,
  subject TEXT,
  outcome TEXT NOT NULL CHECK (outcome IN ('asked', 'done', 'refused', 'failed')),
  why     TEXT,
  times   INTEGER NOT NULL,
  digest  BLOB NOT NULL
) STRICT;
CREATE INDEX audit_log_by_who ON audit_log (who, id);
CREATE INDEX audit_log_by_action ON audit_log (action, id);
CREATE INDEX audit_log_by_subject ON audit_log (subject, id) WHERE subject IS NOT NULL;
