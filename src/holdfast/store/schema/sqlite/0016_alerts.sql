-- Alerts: raised when a rule's condition is true for long enough, cleared when it is over.
-- A digest covers the columns above it; what changes during a record's life stands below it.
-- `kind` tells whether the condition is true, or whether it cannot be evaluated; `subject` is a campaign or 'ledger'.
CREATE TABLE alerts (
  id           TEXT PRIMARY KEY,
  rule         TEXT NOT NULL,
  kind         TEXT NOT NULL CHECK (kind IN ('condition', 'failure')),
  subject      TEXT NOT NULL,
  subject_name TEXT NOT NULL,
  severity     TEXT NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
  condition    TEXT NOT NULL,
  figures      BLOB NOT NULL,
  problem      TEXT,
  raised_at    INTEGER NOT NULL,
  digest       BLOB NOT NULL,
  status       TEXT NOT NULL CHECK (status IN ('raised', 'silenced', 'cleared')),
  why_cleared  TEXT,
  updated_at   INTEGER NOT NULL,
  cleared_at   INTEGER,
  CHECK ((cleared_at IS NOT NULL) = (status = 'cleared'))
) STRICT;
-- Of several gateways that find the same condition true, one raises the alert.
CREATE UNIQUE INDEX alerts_live ON alerts (rule, kind, subject) WHERE status IN ('raised', 'silenced');
CREATE INDEX alerts_by_subject ON alerts (subject, id) WHERE status IN ('raised', 'silenced');
CREATE INDEX alerts_by_rule ON alerts (rule, id);
CREATE INDEX alerts_to_clean ON alerts (cleared_at, id) WHERE cleared_at IS NOT NULL;

-- What is done about an alert, each once.
CREATE TABLE alert_actions (
  alert_id   TEXT NOT NULL,
  action     TEXT NOT NULL
    CHECK (action IN ('notify_human', 'restart_agent', 'force_checkpoint', 'pause_campaign', 'notify_cleared',
                      'notify_failed')),
  status     TEXT NOT NULL CHECK (status IN ('pending', 'done', 'failed', 'skipped')),
  attempts   INTEGER NOT NULL,
  due_at     INTEGER NOT NULL,
  outcome    TEXT,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (alert_id, action)
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_actions_due ON alert_actions (due_at, alert_id, action) WHERE status = 'pending';

-- Since when a rule is true or false of a subject: only while it is true, or its alert is not cleared. Of several
-- gateways, the one that changes a row finds the revision that it has seen.
CREATE TABLE alert_verdicts (
  rule     TEXT NOT NULL,
  kind     TEXT NOT NULL CHECK (kind IN ('condition', 'failure')),
  subject  TEXT NOT NULL,
  digest   TEXT NOT NULL,
  place    TEXT NOT NULL,
  is_true  INTEGER NOT NULL CHECK (is_true IN (0, 1)),
  since_at INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  seen_at  INTEGER NOT NULL,
  PRIMARY KEY (rule, kind, subject)
) STRICT, WITHOUT ROWID;

-- Until then a rule notifies no person and does nothing.
CREATE TABLE alert_silences (
  rule        TEXT PRIMARY KEY,
  until_at    INTEGER NOT NULL,
  silenced_by TEXT NOT NULL,
  reason      TEXT,
  created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
