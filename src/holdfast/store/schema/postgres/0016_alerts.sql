-- Alerts: raised when a rule's condition is true for long enough, cleared when it is over.
-- A digest covers the columns above it; what changes during a record's life stands below it.
-- `kind` tells whether the condition is true, or whether it cannot be evaluated; `subject` is a campaign or 'ledger'.
CREATE TABLE alerts (
  id           TEXT COLLATE "C" PRIMARY KEY,
  rule         TEXT COLLATE "C" NOT NULL,
  kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('condition', 'failure')),
  subject      TEXT COLLATE "C" NOT NULL,
  subject_name TEXT COLLATE "C" NOT NULL,
  severity     TEXT COLLATE "C" NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
  condition    TEXT COLLATE "C" NOT NULL,
  figures      BYTEA NOT NULL,
  problem      TEXT COLLATE "C",
  raised_at    BIGINT NOT NULL,
  digest       BYTEA NOT NULL,
  status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('raised', 'silenced', 'cleared')),
  why_cleared  TEXT COLLATE "C",
  updated_at   BIGINT NOT NULL,
  cleared_at   BIGINT,
  CHECK ((cleared_at IS NOT NULL) = (status = 'cleared'))
);
-- Of several gateways that find the same condition true, one raises the alert.
CREATE UNIQUE INDEX alerts_live ON alerts (rule, kind, subject) WHERE status IN ('raised', 'silenced');
CREATE INDEX alerts_by_subject ON alerts (subject, id) WHERE status IN ('raised', 'silenced');
CREATE INDEX alerts_by_rule ON alerts (rule, id);
CREATE INDEX alerts_to_clean ON alerts (cleared_at, id) WHERE cleared_at IS NOT NULL;

-- What is done about an alert, each once.
CREATE TABLE alert_actions (
  alert_id   TEXT COLLATE "C" NOT NULL,
  action     TEXT COLLATE "C" NOT NULL
    CHECK (action IN ('notify_human', 'restart_agent', 'force_checkpoint', 'pause_campaign', 'notify_cleared',
                      'notify_failed')),
  status     TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'done', 'failed', 'skipped')),
  attempts   BIGINT NOT NULL,
  due_at     BIGINT NOT NULL,
  outcome    TEXT COLLATE "C",
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (alert_id, action)
);
CREATE INDEX alert_actions_due ON alert_actions (due_at, alert_id, action) WHERE status = 'pending';

-- Since when a rule is true or false of a subject: only while it is true, or its alert is not cleared. Of several
-- gateways, the one that changes a row finds the revision that it has seen.
CREATE TABLE alert_verdicts (
  rule     TEXT COLLATE "C" NOT NULL,
  kind     TEXT COLLATE "C" NOT NULL CHECK (kind IN ('condition', 'failure')),
  subject  TEXT COLLATE "C" NOT NULL,
  digest   TEXT COLLATE "C" NOT NULL,
  place    TEXT COLLATE "C" NOT NULL,
  is_true  BIGINT NOT NULL CHECK (is_true IN (0, 1)),
  since_at BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  seen_at  BIGINT NOT NULL,
  PRIMARY KEY (rule, kind, subject)
);

-- Until then a rule notifies no person and does nothing.
CREATE TABLE alert_silences (
  rule        TEXT COLLATE "C" PRIMARY KEY,
  until_at    BIGINT NOT NULL,
  silenced_by TEXT COLLATE "C" NOT NULL,
  reason      TEXT COLLATE "C",
  created_at  BIGINT NOT NULL
);
