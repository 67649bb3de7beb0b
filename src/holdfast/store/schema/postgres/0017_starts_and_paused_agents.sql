-- What each process found and did when it started, step by step (JSON): readable later, also when it died on the way.
CREATE TABLE starts (
  boot_id  TEXT COLLATE "C" PRIMARY KEY,
  role     TEXT COLLATE "C" NOT NULL,
  host     TEXT COLLATE "C" NOT NULL,
  pid      BIGINT NOT NULL,
  began_at BIGINT NOT NULL,
  steps    BYTEA NOT NULL,
  ended_at BIGINT
);
CREATE INDEX starts_by_role ON starts (role, boot_id);
CREATE INDEX starts_by_time ON starts (began_at, boot_id);

-- Agents of gateways that an operator has paused: their messages wait, whichever gateway runs them.
CREATE TABLE paused_agents (
  name      TEXT COLLATE "C" PRIMARY KEY,
  reason    TEXT COLLATE "C" NOT NULL,
  paused_by TEXT COLLATE "C" NOT NULL,
  paused_at BIGINT NOT NULL
);
