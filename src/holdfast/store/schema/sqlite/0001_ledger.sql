-- The first schema: tasks and runs, the journal, checkpoints, events, and the nouns that later work fills.
-- Times are microseconds since 1970. Payloads are JSON bytes, or a reference to a blob (see store/blobs.py).
-- A digest, of eight bytes, covers the columns above it in its table; what changes during a record's life stands
-- below it.
-- The names repos, analysis_state, migration_state, agents, checkpoints and events stay free for views.

CREATE TABLE ledger_facts (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

CREATE TABLE boots (
  id         TEXT PRIMARY KEY,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  role       TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER
) STRICT;
CREATE INDEX boots_alive ON boots (id) WHERE ended_at IS NULL;

CREATE TABLE tasks (
  id                  TEXT PRIMARY KEY,
  owner               TEXT NOT NULL,
  runtime             TEXT NOT NULL
    CHECK (runtime IN ('python', 'command', 'agent', 'subagent', 'acp', 'cron', 'cli', 'media')),
  name                TEXT NOT NULL,
  goal                TEXT NOT NULL,
  arguments           BLOB NOT NULL,
  origin              BLOB,
  session_key         TEXT,
  parent_task_id      TEXT,
  flow_id             TEXT,
  dedup_key           TEXT,
  notify              TEXT NOT NULL CHECK (notify IN ('silent', 'done_only', 'state_changes')),
  created_at          INTEGER NOT NULL,
  digest              BLOB NOT NULL,
  status              TEXT NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'needs_review', 'paused',
                      'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
  priority            INTEGER NOT NULL,
  waits_on            TEXT,
  progress            BLOB,
  result              BLOB,
  result_digest       BLOB,
  failure             BLOB,
  cancel_requested_at INTEGER,
  cancel_reason       TEXT,
  updated_at          INTEGER NOT NULL,
  started_at          INTEGER,
  ended_at            INTEGER,
  cleanup_after       INTEGER,
  CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')))
) STRICT;
CREATE INDEX tasks_by_status ON tasks (status, id);
CREATE INDEX tasks_by_owner ON tasks (owner, id);
CREATE INDEX tasks_by_owner_status ON tasks (owner, status, id);
CREATE INDEX tasks_by_parent ON tasks (parent_task_id, id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX tasks_by_flow ON tasks (flow_id, id) WHERE flow_id IS NOT NULL;
CREATE INDEX tasks_to_clean ON tasks (cleanup_after, id) WHERE cleanup_after IS NOT NULL;

CREATE TABLE dedup_keys (
  owner            TEXT NOT NULL,
  key              TEXT NOT NULL,
  task_id          TEXT NOT NULL,
  arguments_digest BLOB NOT NULL,
  created_at       INTEGER NOT NULL,
  expires_at       INTEGER,
  ended_as         TEXT,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedup_keys_to_clean ON dedup_keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX dedup_keys_by_task ON dedup_keys (task_id);

CREATE TABLE runs (
  id             TEXT PRIMARY KEY,
  task_id        TEXT NOT NULL REFERENCES tasks (id),
  task_name      TEXT NOT NULL,
  number         INTEGER NOT NULL,
  resumes_run_id TEXT UNIQUE,
  checkpoint_id  TEXT,
  seed           BLOB,
  created_at     INTEGER NOT NULL,
  digest         BLOB NOT NULL,
  status         TEXT NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming', 'resumed',
                      'failed_resume', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
  priority       INTEGER NOT NULL,
  due_at         INTEGER NOT NULL,
  queue          TEXT NOT NULL CHECK (queue IN ('ready', 'later', 'producer')),
  is_alone       INTEGER NOT NULL CHECK (is_alone IN (0, 1)),
  idle_attempts  INTEGER NOT NULL,
  claimed_by     TEXT,
  claim_token    TEXT,
  fence          INTEGER NOT NULL,
  lease_until    INTEGER,
  beat_at        INTEGER,
  waits_on       TEXT,
  failure        BLOB,
  updated_at     INTEGER NOT NULL,
  started_at     INTEGER,
  ended_at       INTEGER,
  UNIQUE (task_id, number),
  CHECK ((ended_at IS NOT NULL) = (status IN ('resumed', 'failed_resume', 'succeeded', 'failed',
                                              'timed_out', 'cancelled', 'lost'))),
  CHECK (status <> 'running' OR (claimed_by IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK (status <> 'waiting' OR waits_on IS NOT NULL)
) STRICT;
-- One live run per task: a second incarnation beside a living one is refused by the database itself.
CREATE UNIQUE INDEX runs_alive ON runs (task_id)
  WHERE status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming');
CREATE INDEX runs_ready ON runs (priority, due_at, id)
  WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0;
CREATE INDEX runs_later ON runs (due_at, id) WHERE status = 'queued' AND queue = 'later';
CREATE INDEX runs_waiting ON runs (due_at, id) WHERE status = 'waiting';
CREATE INDEX runs_suspect ON runs (priority, due_at, id)
  WHERE status = 'queued' AND queue = 'ready' AND is_alone = 1;
CREATE INDEX runs_claimed ON runs (claimed_by, claim_token) WHERE status = 'running';
CREATE INDEX runs_alone ON runs (claimed_by) WHERE status = 'running' AND is_alone = 1;
CREATE INDEX runs_leased ON runs (lease_until, id) WHERE status = 'running';

CREATE TABLE steps (
  task_id      TEXT NOT NULL,
  scope        TEXT NOT NULL,
  name         TEXT NOT NULL,
  occurrence   TEXT NOT NULL,
  run_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  input_digest BLOB,
  result       BLOB NOT NULL,
  started_at   INTEGER NOT NULL,
  ended_at     INTEGER NOT NULL,
  digest       BLOB NOT NULL,
  PRIMARY KEY (task_id, scope, name, occurrence)
) STRICT, WITHOUT ROWID;

CREATE TABLE plans (
  task_id    TEXT PRIMARY KEY,
  run_id     TEXT NOT NULL,
  items      BLOB NOT NULL,
  updated_at INTEGER NOT NULL,
  digest     BLOB NOT NULL
) STRICT;

CREATE TABLE artifacts (
  task_id     TEXT NOT NULL,
  name        TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  body        BLOB NOT NULL,
  recorded_at INTEGER NOT NULL,
  digest      BLOB NOT NULL,
  PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
  task_id    TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  run_id     TEXT NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('decision', 'tool_context')),
  text       TEXT NOT NULL,
  written_at INTEGER NOT NULL,
  digest     BLOB NOT NULL,
  PRIMARY KEY (task_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE loops (
  task_id    TEXT NOT NULL,
  loop       TEXT NOT NULL,
  turns_done INTEGER NOT NULL,
  is_over    INTEGER NOT NULL CHECK (is_over IN (0, 1)),
  updated_at INTEGER NOT NULL,
  digest     BLOB NOT NULL,
  PRIMARY KEY (task_id, loop)
) STRICT, WITHOUT ROWID;

-- What is left of a turn when it has committed: its steps are summed up here, and their rows are gone.
CREATE TABLE turns (
  task_id    TEXT NOT NULL,
  loop       TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  turn       TEXT NOT NULL,
  run_id     TEXT NOT NULL,
  steps      BLOB NOT NULL,
  step_count INTEGER NOT NULL,
  last_step  TEXT,
  began_at   INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  marks      BLOB,
  digest     BLOB NOT NULL,
  PRIMARY KEY (task_id, loop, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE list_deltas (
  task_id    TEXT NOT NULL,
  list       TEXT NOT NULL,
  start      INTEGER NOT NULL,
  count      INTEGER NOT NULL,
  items      BLOB NOT NULL,
  chain      BLOB NOT NULL,
  run_id     TEXT NOT NULL,
  written_at INTEGER NOT NULL,
  digest     BLOB NOT NULL,
  PRIMARY KEY (task_id, list, start)
) STRICT, WITHOUT ROWID;

CREATE TABLE durable_values (
  task_id    TEXT NOT NULL,
  name       TEXT NOT NULL,
  value      BLOB NOT NULL,
  written_at INTEGER NOT NULL,
  digest     BLOB NOT NULL,
  PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;

-- What an open scope, or the finished turns of a loop, did to lists and values (JSON): a replay does the same.
CREATE TABLE scope_ops (
  task_id TEXT NOT NULL,
  scope   TEXT NOT NULL,
  ops     BLOB NOT NULL,
  digest  BLOB NOT NULL,
  PRIMARY KEY (task_id, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE mail (
  task_id  TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  topic    TEXT NOT NULL,
  body     BLOB NOT NULL,
  sender   TEXT NOT NULL,
  key      TEXT NOT NULL,
  sent_at  INTEGER NOT NULL,
  digest   BLOB NOT NULL,
  taken_at INTEGER,
  PRIMARY KEY (task_id, seq),
  UNIQUE (task_id, key)
) STRICT;
CREATE INDEX mail_open ON mail (task_id, topic, seq) WHERE taken_at IS NULL;

CREATE TABLE questions (
  id             TEXT PRIMARY KEY,
  task_id        TEXT NOT NULL,
  run_id         TEXT NOT NULL,
  question       TEXT NOT NULL,
  choices        BLOB,
  default_answer BLOB,
  asked_at       INTEGER NOT NULL,
  due_at         INTEGER,
  digest         BLOB NOT NULL,
  answered_at    INTEGER,
  answer         BLOB,
  answer_digest  BLOB,
  answered_by    TEXT,
  CHECK ((answered_at IS NOT NULL) = (answer IS NOT NULL))
) STRICT;
CREATE INDEX questions_by_task ON questions (task_id, id);
CREATE INDEX questions_open ON questions (answered_at, id) WHERE answered_at IS NULL;

CREATE TABLE run_checkpoints (
  id             TEXT PRIMARY KEY,
  task_id        TEXT NOT NULL REFERENCES tasks (id),
  run_id         TEXT NOT NULL,
  kind           TEXT NOT NULL
    CHECK (kind IN ('micro', 'batch', 'milestone', 'periodic', 'restart', 'crash', 'timeout')),
  reason         TEXT NOT NULL,
  schema_version INTEGER NOT NULL,
  document       BLOB NOT NULL,
  retry_of       TEXT UNIQUE,
  created_at     INTEGER NOT NULL,
  digest         BLOB NOT NULL,
  status         TEXT CHECK (status IN ('paused_for_restart', 'resuming', 'resumed', 'failed_resume')),
  priority       INTEGER NOT NULL,
  token          TEXT,
  claimed_by     TEXT,
  lease_until    INTEGER,
  attempts       INTEGER NOT NULL,
  resumed_run_id TEXT UNIQUE,
  diagnostic     BLOB,
  updated_at     INTEGER NOT NULL,
  CHECK ((status IS NOT NULL) = (kind IN ('restart', 'crash', 'timeout'))),
  CHECK ((resumed_run_id IS NOT NULL) = (status IS NOT NULL AND status = 'resumed')),
  CHECK (status IS NULL OR status <> 'resuming' OR token IS NOT NULL)
) STRICT;
-- A run is paused by one checkpoint at a time.
CREATE UNIQUE INDEX run_checkpoints_open ON run_checkpoints (run_id)
  WHERE status IN ('paused_for_restart', 'resuming');
CREATE INDEX run_checkpoints_paused ON run_checkpoints (priority, created_at, id)
  WHERE status = 'paused_for_restart';
CREATE INDEX run_checkpoints_resuming ON run_checkpoints (claimed_by, token) WHERE status = 'resuming';
CREATE INDEX run_checkpoints_by_task ON run_checkpoints (task_id, id);
CREATE INDEX run_checkpoints_by_status ON run_checkpoints (status, id);

-- Here each check is a row of comparisons: for a list SQLite fills a table anew with every write.
CREATE TABLE effects (
  id              TEXT NOT NULL,
  task_id         TEXT NOT NULL,
  run_id          TEXT NOT NULL,
  scope           TEXT NOT NULL,
  name            TEXT NOT NULL,
  occurrence      TEXT NOT NULL,
  effect_class    TEXT NOT NULL
    CHECK (effect_class = 'opaque' OR effect_class = 'verifiable' OR effect_class = 'keyed'
           OR effect_class = 'transactional' OR effect_class = 'idempotent' OR effect_class = 'read'),
  idempotency_key TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  request         BLOB NOT NULL,
  created_at      INTEGER NOT NULL,
  digest          BLOB NOT NULL,
  status          TEXT NOT NULL
    CHECK (status = 'intent' OR status = 'done' OR status = 'failed' OR status = 'unknown' OR status = 'confirmed'),
  fence           INTEGER NOT NULL,
  outcome         BLOB,
  outcome_digest  BLOB,
  review          BLOB,
  review_digest   BLOB,
  settle_after    INTEGER,
  updated_at      INTEGER NOT NULL,
  -- Until its turn commits: the journal is replayed from it, and one that is done is its own step there.
  in_journal      INTEGER NOT NULL CHECK (in_journal IN (0, 1)),
  -- Its status when it is, or was, in doubt; or has failed.
  doubt           TEXT GENERATED ALWAYS AS
    (CASE WHEN status <> 'intent' AND status <> 'done' THEN status END) VIRTUAL,
  PRIMARY KEY (task_id, in_journal, scope, name, occurrence, generation)
) STRICT, WITHOUT ROWID;
-- People and runs ask by id only for what was ever in doubt, or failed.
CREATE UNIQUE INDEX effects_doubted ON effects (id) WHERE doubt IS NOT NULL;
-- Of those in the journal there are few, and they are sorted when somebody looks.
CREATE INDEX effects_past ON effects (task_id, id) WHERE in_journal = 0;
-- Who keeps receipts of what can be verified asks by the key.
CREATE INDEX effects_verifiable ON effects (idempotency_key) WHERE effect_class = 'verifiable';
CREATE INDEX effects_unknown ON effects (doubt, id) WHERE doubt = 'unknown';

CREATE TABLE deliveries (
  id              TEXT PRIMARY KEY,
  task_id         TEXT NOT NULL,
  idempotency_key TEXT NOT NULL UNIQUE,
  origin          BLOB,
  target          TEXT NOT NULL,
  message         BLOB NOT NULL,
  created_at      INTEGER NOT NULL,
  digest          BLOB NOT NULL,
  status          TEXT NOT NULL
    CHECK (status IN ('pending', 'attempting', 'delivered', 'session_queued', 'failed',
                      'parent_missing', 'not_applicable', 'dismissed')),
  attempts        INTEGER NOT NULL,
  due_at          INTEGER NOT NULL,
  failure         BLOB,
  claimed_by      TEXT,
  updated_at      INTEGER NOT NULL,
  channel         TEXT NOT NULL
) STRICT;
-- By channel: who sends for some of them does not look at what is owed through others.
CREATE INDEX deliveries_due ON deliveries (channel, due_at, id) WHERE status = 'pending';
CREATE INDEX deliveries_attempting ON deliveries (due_at, id) WHERE status = 'attempting';
-- What is owed to one target is sent in order.
CREATE INDEX deliveries_open ON deliveries (channel, target, created_at, id)
  WHERE status IN ('pending', 'attempting');
CREATE INDEX deliveries_by_task ON deliveries (task_id, id);
-- What was given up, for whoever looks after it.
CREATE INDEX deliveries_failed ON deliveries (id) WHERE status = 'failed';
-- What nobody will send any more, for retention.
CREATE INDEX deliveries_settled ON deliveries (updated_at, id)
  WHERE status IN ('delivered', 'failed', 'parent_missing', 'not_applicable', 'dismissed');

CREATE TABLE flows (
  id                  TEXT PRIMARY KEY,
  owner               TEXT NOT NULL,
  mode                TEXT NOT NULL CHECK (mode IN ('managed', 'task_mirrored')),
  goal                TEXT NOT NULL,
  created_at          INTEGER NOT NULL,
  digest              BLOB NOT NULL,
  status              TEXT NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'blocked', 'succeeded', 'failed', 'cancelled', 'lost')),
  revision            INTEGER NOT NULL,
  current_step        TEXT,
  contents            BLOB,
  waits_on            TEXT,
  blocked_by_task_id  TEXT,
  cancel_requested_at INTEGER,
  updated_at          INTEGER NOT NULL,
  ended_at            INTEGER,
  CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'lost')))
) STRICT;
CREATE INDEX flows_by_status ON flows (status, id);
CREATE INDEX flows_by_owner ON flows (owner, id);

CREATE TABLE sessions (
  id            TEXT PRIMARY KEY,
  key           TEXT NOT NULL UNIQUE,
  agent         TEXT NOT NULL,
  parent_key    TEXT,
  created_at    INTEGER NOT NULL,
  digest        BLOB NOT NULL,
  status        TEXT NOT NULL
    CHECK (status IN ('idle', 'processing', 'draining', 'interrupted', 'waiting')),
  waits_on      TEXT,
  origin        BLOB,
  task_id       TEXT,
  last_position INTEGER NOT NULL,
  queued        INTEGER NOT NULL CHECK (queued >= 0),
  ready_at      INTEGER,
  updated_at    INTEGER NOT NULL,
  CHECK (status <> 'idle' OR task_id IS NULL),
  CHECK ((ready_at IS NOT NULL) = (task_id IS NULL AND queued > 0))
) STRICT;
CREATE INDEX sessions_by_status ON sessions (status, id);
CREATE INDEX sessions_by_time ON sessions (updated_at, id);
CREATE INDEX sessions_by_agent ON sessions (agent, updated_at, id);
-- A task answers in one session.
CREATE UNIQUE INDEX sessions_busy ON sessions (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX sessions_ready ON sessions (ready_at, id) WHERE ready_at IS NOT NULL;

CREATE TABLE messages (
  id                 TEXT PRIMARY KEY,
  session_key        TEXT NOT NULL,
  position           INTEGER NOT NULL,
  role               TEXT NOT NULL CHECK (role IN ('user', 'agent', 'system')),
  channel            TEXT NOT NULL,
  account_id         TEXT NOT NULL,
  channel_message_id TEXT,
  origin             BLOB,
  body               BLOB NOT NULL,
  reply_to           TEXT,
  created_at         INTEGER NOT NULL,
  digest             BLOB NOT NULL,
  status             TEXT NOT NULL
    CHECK (status IN ('queued', 'taken', 'answered', 'failed', 'noted')),
  task_id            TEXT,
  updated_at         INTEGER NOT NULL,
  UNIQUE (session_key, position)
) STRICT;
-- A message enters once, however often its channel hands it in.
CREATE UNIQUE INDEX messages_once ON messages (channel, account_id, channel_message_id)
  WHERE channel_message_id IS NOT NULL;
CREATE INDEX messages_queued ON messages (session_key, position) WHERE status = 'queued';
CREATE INDEX messages_taken ON messages (task_id) WHERE status = 'taken';
-- What nobody has to answer any more, for retention.
CREATE INDEX messages_settled ON messages (updated_at, id) WHERE status IN ('answered', 'failed', 'noted');

CREATE TABLE firings (
  id            TEXT PRIMARY KEY,
  schedule      TEXT NOT NULL,
  occurrence_at INTEGER NOT NULL,
  session_key   TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  digest        BLOB NOT NULL,
  status        TEXT NOT NULL
    CHECK (status IN ('due', 'running', 'done', 'failed', 'missed', 'requeued')),
  message_id    TEXT UNIQUE,
  task_id       TEXT,
  is_retry      INTEGER NOT NULL CHECK (is_retry IN (0, 1)),
  updated_at    INTEGER NOT NULL,
  UNIQUE (schedule, occurrence_at)
) STRICT;
CREATE INDEX firings_open ON firings (occurrence_at, id) WHERE status IN ('due', 'running', 'requeued');
CREATE INDEX firings_settled ON firings (updated_at, id) WHERE status IN ('done', 'failed', 'missed');

CREATE TABLE wakes (
  id            TEXT PRIMARY KEY,
  task_id       TEXT NOT NULL,
  checkpoint_id TEXT,
  reason        TEXT NOT NULL
    CHECK (reason IN ('timeout_recovery', 'dependency_ready', 'scheduled_progress')),
  attempt       INTEGER NOT NULL,
  created_at    INTEGER NOT NULL,
  digest        BLOB NOT NULL,
  status        TEXT NOT NULL CHECK (status IN ('pending', 'fired', 'cancelled', 'expired')),
  due_at        INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX wakes_due ON wakes (due_at, id) WHERE status = 'pending';
CREATE INDEX wakes_by_task ON wakes (task_id, id);

CREATE TABLE restarts (
  id           TEXT PRIMARY KEY,
  boot_id      TEXT NOT NULL,
  place        TEXT NOT NULL,
  requested_at INTEGER NOT NULL,
  manifest     BLOB NOT NULL,
  digest       BLOB NOT NULL,
  status       TEXT NOT NULL CHECK (status IN ('draining', 'drained', 'blocked', 'recovered')),
  triggers     BLOB NOT NULL,
  outcome      BLOB,
  recovered_by TEXT,
  updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX restarts_open ON restarts (id) WHERE status IN ('draining', 'drained');
CREATE INDEX restarts_settled ON restarts (updated_at, id) WHERE status IN ('blocked', 'recovered');

CREATE TABLE blobs (
  digest     TEXT PRIMARY KEY,
  size_bytes INTEGER NOT NULL,
  body       BLOB NOT NULL
) STRICT;

CREATE TABLE blob_uses (
  task_id TEXT NOT NULL,
  digest  TEXT NOT NULL REFERENCES blobs (digest),
  PRIMARY KEY (task_id, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_uses_by_digest ON blob_uses (digest);

CREATE TABLE ledger_events (
  position   INTEGER PRIMARY KEY AUTOINCREMENT,
  at         INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  task_id    TEXT,
  subject_id TEXT NOT NULL,
  facts      BLOB NOT NULL
) STRICT;
CREATE INDEX ledger_events_by_task ON ledger_events (task_id, position);
CREATE INDEX ledger_events_by_time ON ledger_events (at);

CREATE TABLE counters (
  noun   TEXT NOT NULL,
  status TEXT NOT NULL,
  amount INTEGER NOT NULL,
  PRIMARY KEY (noun, status)
) STRICT, WITHOUT ROWID;
