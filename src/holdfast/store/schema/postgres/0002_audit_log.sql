-- The audit log: who did what, through which door, and what came of it.
-- A row is inserted once, deleted by retention, and never updated.
CREATE TABLE audit_log (
  id      TEXT COLLATE "C" PRIMARY KEY,
  at      BIGINT NOT NULL,
  who     TEXT COLLATE "C" NOT NULL,
  door    TEXT COLLATE "C" NOT NULL
    CHECK (door IN ('command', 'socket', 'http', 'websocket', 'channel', 'gateway')),
  address TEXT COLLATE "C",
  action  TEXT COLLATE "C" NOT NULL,
  subject TEXT COLLATE "C",
  outcome TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('asked', 'done', 'refused', 'failed')),
  why     TEXT COLLATE "C",
  times   BIGINT NOT NULL,
  digest  BYTEA NOT NULL
);
CREATE INDEX audit_log_by_who ON audit_log (who, id);
CREATE INDEX audit_log_by_action ON audit_log (action, id);
CREATE INDEX audit_log_by_subject ON audit_log (subject, id) WHERE subject IS NOT NULL;
