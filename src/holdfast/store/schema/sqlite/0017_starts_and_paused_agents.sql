-- What each process found and did when it started, step by step (JSON): readable later, also when it died on the way.
CREATE TABLE starts (
  boot_id  TEXT PRIMARY KEY,
  role     TEXT NOT NULL,
  host     TEXT NOT NULL,
  pid      INTEGER NOT NULL,
  began_at INTEGER NOT NULL,
  steps    BLOB NOT NULL,
  ended_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX starts_by_role ON starts (role, boot_id);
CREATE INDEX starts_by_time ON starts (began_at, boot_id);

-- Agents of gateways that an operator has paused: their messages wait, whichever gateway runs them.
CREATE TABLE paused_agents (
  name      TEXT PRIMARY KEY,
  reason    TEXT NOT NULL,
  paused_by TEXT NOT NULL,
  paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
