-- The first schema: tasks and runs, the journal, checkpoints, events, and the nouns that later work fills.
-- Times are microseconds since 1970. Payloads are JSON bytes, or a reference to a blob (see store/blobs.py).
-- A digest, of eight bytes, covers the columns above it in its table; what changes during a record's life stands
-- below it.
-- Text sorts by its bytes, as in SQLite, whatever the collation of the database: ids are compared and paged.
-- The names repos, analysis_state, migration_state, agents, checkpoints and events stay free for views.

CREATE TABLE ledger_facts (
  name  TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE boots (
  id         TEXT COLLATE "C" PRIMARY KEY,
  host       TEXT COLLATE "C" NOT NULL,
  pid        BIGINT NOT NULL,
  role       TEXT COLLATE "C" NOT NULL,
  started_at BIGINT NOT NULL,
  ended_at   BIGINT
);
CREATE INDEX boots_alive ON boots (id) WHERE ended_at IS NULL;

CREATE TABLE tasks (
  id                  TEXT COLLATE "C" PRIMARY KEY,
  owner               TEXT COLLATE "C" NOT NULL,
  runtime             TEXT COLLATE "C" NOT NULL
    CHECK (runtime IN ('python', 'command', 'agent', 'subagent', 'acp', 'cron', 'cli', 'media')),
  name                TEXT COLLATE "C" NOT NULL,
  goal                TEXT COLLATE "C" NOT NULL,
  arguments           BYTEA NOT NULL,
  origin              BYTEA,
  session_key         TEXT COLLATE "C",
  parent_task_id      TEXT COLLATE "C",
  flow_id             TEXT COLLATE "C",
  dedup_key           TEXT COLLATE "C",
  notify              TEXT COLLATE "C" NOT NULL CHECK (notify IN ('silent', 'done_only', 'state_changes')),
  created_at          BIGINT NOT NULL,
  digest              BYTEA NOT NULL,
  status              TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'needs_review', 'paused',
                      'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
  priority            BIGINT NOT NULL,
  waits_on            TEXT COLLATE "C",
  progress            BYTEA,
  result              BYTEA,
  result_digest       BYTEA,
  failure             BYTEA,
  cancel_requested_at BIGINT,
  cancel_reason       TEXT COLLATE "C",
  updated_at          BIGINT NOT NULL,
  started_at          BIGINT,
  ended_at            BIGINT,
  cleanup_after       BIGINT,
  CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'lost')))
);
CREATE INDEX tasks_by_status ON tasks (status, id);
CREATE INDEX tasks_by_owner ON tasks (owner, id);
CREATE INDEX tasks_by_owner_status ON tasks (owner, status, id);
CREATE INDEX tasks_by_parent ON tasks (parent_task_id, id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX tasks_by_flow ON tasks (flow_id, id) WHERE flow_id IS NOT NULL;
CREATE INDEX tasks_to_clean ON tasks (cleanup_after, id) WHERE cleanup_after IS NOT NULL;

CREATE TABLE dedup_keys (
  owner            TEXT COLLATE "C" NOT NULL,
  key              TEXT COLLATE "C" NOT NULL,
  task_id          TEXT COLLATE "C" NOT NULL,
  arguments_digest BYTEA NOT NULL,
  created_at       BIGINT NOT NULL,
  expires_at       BIGINT,
  ended_as         TEXT COLLATE "C",
  PRIMARY KEY (owner, key)
);
CREATE INDEX dedup_keys_to_clean ON dedup_keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX dedup_keys_by_task ON dedup_keys (task_id);

CREATE TABLE runs (
  id             TEXT COLLATE "C" PRIMARY KEY,
  task_id        TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
  task_name      TEXT COLLATE "C" NOT NULL,
  number         BIGINT NOT NULL,
  resumes_run_id TEXT COLLATE "C" UNIQUE,
  checkpoint_id  TEXT COLLATE "C",
  seed           BYTEA,
  created_at     BIGINT NOT NULL,
  digest         BYTEA NOT NULL,
  status         TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming', 'resumed',
                      'failed_resume', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
  priority       BIGINT NOT NULL,
  due_at         BIGINT NOT NULL,
  queue          TEXT COLLATE "C" NOT NULL CHECK (queue IN ('ready', 'later', 'producer')),
  is_alone       BIGINT NOT NULL CHECK (is_alone IN (0, 1)),
  idle_attempts  BIGINT NOT NULL,
  claimed_by     TEXT COLLATE "C",
  claim_token    TEXT COLLATE "C",
  fence          BIGINT NOT NULL,
  lease_until    BIGINT,
  beat_at        BIGINT,
  waits_on       TEXT COLLATE "C",
  failure        BYTEA,
  updated_at     BIGINT NOT NULL,
  started_at     BIGINT,
  ended_at       BIGINT,
  UNIQUE (task_id, number),
  CHECK ((ended_at IS NOT NULL) = (status IN ('resumed', 'failed_resume', 'succeeded', 'failed',
                                              'timed_out', 'cancelled', 'lost'))),
  CHECK (status <> 'running' OR (claimed_by IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK (status <> 'waiting' OR waits_on IS NOT NULL)
);
-- One live run per task: a second incarnation beside a living one is refused by the database itself.
-- (Each partial index also names a column that is NULL, or is not, in all its rows. Without statistics the
-- planner takes a partial index for tiny, and would read all of it to find one run by its id; a query that
-- wants the index says the same.)
CREATE UNIQUE INDEX runs_alive ON runs (task_id)
  WHERE status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming') AND ended_at IS NULL;
CREATE INDEX runs_ready ON runs (priority, due_at, id)
  WHERE status = 'queued' AND queue = 'ready' AND is_alone = 0;
CREATE INDEX runs_later ON runs (due_at, id) WHERE status = 'queued' AND queue = 'later';
CREATE INDEX runs_waiting ON runs (due_at, id) WHERE status = 'waiting' AND waits_on IS NOT NULL;
CREATE INDEX runs_suspect ON runs (priority, due_at, id)
  WHERE status = 'queued' AND queue = 'ready' AND is_alone = 1;
CREATE INDEX runs_claimed ON runs (claimed_by, claim_token) WHERE status = 'running' AND claimed_by IS NOT NULL;
CREATE INDEX runs_alone ON runs (claimed_by) WHERE status = 'running' AND is_alone = 1 AND claimed_by IS NOT NULL;
CREATE INDEX runs_leased ON runs (lease_until, id) WHERE status = 'running' AND lease_until IS NOT NULL;

CREATE TABLE steps (
  task_id      TEXT COLLATE "C" NOT NULL,
  scope        TEXT COLLATE "C" NOT NULL,
  name         TEXT COLLATE "C" NOT NULL,
  occurrence   TEXT COLLATE "C" NOT NULL,
  run_id       TEXT COLLATE "C" NOT NULL,
  seq          BIGINT NOT NULL,
  input_digest BYTEA,
  result       BYTEA NOT NULL,
  started_at   BIGINT NOT NULL,
  ended_at     BIGINT NOT NULL,
  digest       BYTEA NOT NULL,
  PRIMARY KEY (task_id, scope, name, occurrence)
);

CREATE TABLE plans (
  task_id    TEXT COLLATE "C" PRIMARY KEY,
  run_id     TEXT COLLATE "C" NOT NULL,
  items      BYTEA NOT NULL,
  updated_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL
);

CREATE TABLE artifacts (
  task_id     TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  run_id      TEXT COLLATE "C" NOT NULL,
  body        BYTEA NOT NULL,
  recorded_at BIGINT NOT NULL,
  digest      BYTEA NOT NULL,
  PRIMARY KEY (task_id, name)
);

CREATE TABLE notes (
  task_id    TEXT COLLATE "C" NOT NULL,
  seq        BIGINT NOT NULL,
  run_id     TEXT COLLATE "C" NOT NULL,
  kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('decision', 'tool_context')),
  text       TEXT COLLATE "C" NOT NULL,
  written_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  PRIMARY KEY (task_id, seq)
);

CREATE TABLE loops (
  task_id    TEXT COLLATE "C" NOT NULL,
  loop       TEXT COLLATE "C" NOT NULL,
  turns_done BIGINT NOT NULL,
  is_over    BIGINT NOT NULL CHECK (is_over IN (0, 1)),
  updated_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  PRIMARY KEY (task_id, loop)
);

-- What is left of a turn when it has committed: its steps are summed up here, and their rows are gone.
CREATE TABLE turns (
  task_id    TEXT COLLATE "C" NOT NULL,
  loop       TEXT COLLATE "C" NOT NULL,
  seq        BIGINT NOT NULL,
  turn       TEXT COLLATE "C" NOT NULL,
  run_id     TEXT COLLATE "C" NOT NULL,
  steps      BYTEA NOT NULL,
  step_count BIGINT NOT NULL,
  last_step  TEXT COLLATE "C",
  began_at   BIGINT NOT NULL,
  ended_at   BIGINT NOT NULL,
  marks      BYTEA,
  digest     BYTEA NOT NULL,
  PRIMARY KEY (task_id, loop, seq)
);

CREATE TABLE list_deltas (
  task_id    TEXT COLLATE "C" NOT NULL,
  list       TEXT COLLATE "C" NOT NULL,
  start      BIGINT NOT NULL,
  count      BIGINT NOT NULL,
  items      BYTEA NOT NULL,
  chain      BYTEA NOT NULL,
  run_id     TEXT COLLATE "C" NOT NULL,
  written_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  PRIMARY KEY (task_id, list, start)
);

CREATE TABLE durable_values (
  task_id    TEXT COLLATE "C" NOT NULL,
  name       TEXT COLLATE "C" NOT NULL,
  value      BYTEA NOT NULL,
  written_at BIGINT NOT NULL,
  digest     BYTEA NOT NULL,
  PRIMARY KEY (task_id, name)
);

-- What an open scope, or the finished turns of a loop, did to lists and values (JSON): a replay does the same.
CREATE TABLE scope_ops (
  task_id TEXT COLLATE "C" NOT NULL,
  scope   TEXT COLLATE "C" NOT NULL,
  ops     BYTEA NOT NULL,
  digest  BYTEA NOT NULL,
  PRIMARY KEY (task_id, scope)
);

CREATE TABLE mail (
  task_id  TEXT COLLATE "C" NOT NULL,
  seq      BIGINT NOT NULL,
  topic    TEXT COLLATE "C" NOT NULL,
  body     BYTEA NOT NULL,
  sender   TEXT COLLATE "C" NOT NULL,
  key      TEXT COLLATE "C" NOT NULL,
  sent_at  BIGINT NOT NULL,
  digest   BYTEA NOT NULL,
  taken_at BIGINT,
  PRIMARY KEY (task_id, seq),
  UNIQUE (task_id, key)
);
CREATE INDEX mail_open ON mail (task_id, topic, seq) WHERE taken_at IS NULL;

CREATE TABLE questions (
  id             TEXT COLLATE "C" PRIMARY KEY,
  task_id        TEXT COLLATE "C" NOT NULL,
  run_id         TEXT COLLATE "C" NOT NULL,
  question       TEXT COLLATE "C" NOT NULL,
  choices        BYTEA,
  default_answer BYTEA,
  asked_at       BIGINT NOT NULL,
  due_at         BIGINT,
  digest         BYTEA NOT NULL,
  answered_at    BIGINT,
  answer         BYTEA,
  answer_digest  BYTEA,
  answered_by    TEXT COLLATE "C",
  CHECK ((answered_at IS NOT NULL) = (answer IS NOT NULL))
);
CREATE INDEX questions_by_task ON questions (task_id, id);
CREATE INDEX questions_open ON questions (answered_at, id) WHERE answered_at IS NULL;

CREATE TABLE run_checkpoints (
  id             TEXT COLLATE "C" PRIMARY KEY,
  task_id        TEXT COLLATE "C" NOT NULL REFERENCES tasks (id),
  run_id         TEXT COLLATE "C" NOT NULL,
  kind           TEXT COLLATE "C" NOT NULL
    CHECK (kind IN ('micro', 'batch', 'milestone', 'periodic', 'restart', 'crash', 'timeout')),
  reason         TEXT COLLATE "C" NOT NULL,
  schema_version BIGINT NOT NULL,
  document       BYTEA NOT NULL,
  retry_of       TEXT COLLATE "C" UNIQUE,
  created_at     BIGINT NOT NULL,
  digest         BYTEA NOT NULL,
  status         TEXT COLLATE "C" CHECK (status IN ('paused_for_restart', 'resuming', 'resumed', 'failed_resume')),
  priority       BIGINT NOT NULL,
  token          TEXT COLLATE "C",
  claimed_by     TEXT COLLATE "C",
  lease_until    BIGINT,
  attempts       BIGINT NOT NULL,
  resumed_run_id TEXT COLLATE "C" UNIQUE,
  diagnostic     BYTEA,
  updated_at     BIGINT NOT NULL,
  CHECK ((status IS NOT NULL) = (kind IN ('restart', 'crash', 'timeout'))),
  CHECK ((resumed_run_id IS NOT NULL) = (status IS NOT NULL AND status = 'resumed')),
  CHECK (status IS NULL OR status <> 'resuming' OR token IS NOT NULL)
);
-- A run is paused by one checkpoint at a time.
CREATE UNIQUE INDEX run_checkpoints_open ON run_checkpoints (run_id)
  WHERE status IN ('paused_for_restart', 'resuming') AND resumed_run_id IS NULL;
CREATE INDEX run_checkpoints_paused ON run_checkpoints (priority, created_at, id)
  WHERE status = 'paused_for_restart' AND resumed_run_id IS NULL;
CREATE INDEX run_checkpoints_resuming ON run_checkpoints (claimed_by, token)
  WHERE status = 'resuming' AND claimed_by IS NOT NULL;
CREATE INDEX run_checkpoints_by_task ON run_checkpoints (task_id, id);
CREATE INDEX run_checkpoints_by_status ON run_checkpoints (status, id);

-- Domains, because PostgreSQL reads each CHECK of a table anew for each statement: of this one, which every effect
-- writes twice, that was a seventh of the statement.
CREATE DOMAIN effect_class AS TEXT COLLATE "C"
  CHECK (VALUE IN ('read', 'idempotent', 'keyed', 'verifiable', 'transactional', 'opaque'));
CREATE DOMAIN effect_status AS TEXT COLLATE "C"
  CHECK (VALUE IN ('intent', 'done', 'failed', 'unknown', 'confirmed'));
CREATE TABLE effects (
  id              TEXT COLLATE "C" NOT NULL,
  task_id         TEXT COLLATE "C" NOT NULL,
  run_id          TEXT COLLATE "C" NOT NULL,
  scope           TEXT COLLATE "C" NOT NULL,
  name            TEXT COLLATE "C" NOT NULL,
  occurrence      TEXT COLLATE "C" NOT NULL,
  effect_class    effect_class NOT NULL,
  idempotency_key TEXT COLLATE "C" NOT NULL,
  generation      BIGINT NOT NULL,
  request         BYTEA NOT NULL,
  created_at      BIGINT NOT NULL,
  digest          BYTEA NOT NULL,
  status          effect_status NOT NULL,
  fence           BIGINT NOT NULL,
  outcome         BYTEA,
  outcome_digest  BYTEA,
  review          BYTEA,
  review_digest   BYTEA,
  settle_after    BIGINT,
  updated_at      BIGINT NOT NULL,
  -- Until its turn commits: the journal is replayed from it, and one that is done is its own step there.
  in_journal      BIGINT NOT NULL,
  -- Its status when it is, or was, in doubt; or has failed. Indexes ask this one and not the status: one that
  -- changes there makes PostgreSQL write every index of the table anew, and an effect that is done needs none.
  doubt           TEXT COLLATE "C" GENERATED ALWAYS AS
    (CASE WHEN status <> 'intent' AND status <> 'done' THEN status END) STORED,
  PRIMARY KEY (task_id, in_journal, scope, name, occurrence, generation)
);
-- People and runs ask by id only for what was ever in doubt, or failed.
CREATE UNIQUE INDEX effects_doubted ON effects (id) WHERE doubt IS NOT NULL;
-- Of those in the journal there are few, and they are sorted when somebody looks.
CREATE INDEX effects_past ON effects (task_id, id) WHERE in_journal = 0;
-- Who keeps receipts of what can be verified asks by the key.
CREATE INDEX effects_verifiable ON effects (idempotency_key) WHERE effect_class = 'verifiable';
CREATE INDEX effects_unknown ON effects (doubt, id) WHERE doubt = 'unknown';

CREATE TABLE deliveries (
  id              TEXT COLLATE "C" PRIMARY KEY,
  task_id         TEXT COLLATE "C" NOT NULL,
  idempotency_key TEXT COLLATE "C" NOT NULL UNIQUE,
  origin          BYTEA,
  target          TEXT COLLATE "C" NOT NULL,
  message         BYTEA NOT NULL,
  created_at      BIGINT NOT NULL,
  digest          BYTEA NOT NULL,
  status          TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('pending', 'attempting', 'delivered', 'session_queued', 'failed',
                      'parent_missing', 'not_applicable', 'dismissed')),
  attempts        BIGINT NOT NULL,
  due_at          BIGINT NOT NULL,
  failure         BYTEA,
  claimed_by      TEXT COLLATE "C",
  updated_at      BIGINT NOT NULL,
  channel         TEXT COLLATE "C" NOT NULL
);
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
  id                  TEXT COLLATE "C" PRIMARY KEY,
  owner               TEXT COLLATE "C" NOT NULL,
  mode                TEXT COLLATE "C" NOT NULL CHECK (mode IN ('managed', 'task_mirrored')),
  goal                TEXT COLLATE "C" NOT NULL,
  created_at          BIGINT NOT NULL,
  digest              BYTEA NOT NULL,
  status              TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('queued', 'running', 'waiting', 'blocked', 'succeeded', 'failed', 'cancelled', 'lost')),
  revision            BIGINT NOT NULL,
  current_step        TEXT COLLATE "C",
  contents            BYTEA,
  waits_on            TEXT COLLATE "C",
  blocked_by_task_id  TEXT COLLATE "C",
  cancel_requested_at BIGINT,
  updated_at          BIGINT NOT NULL,
  ended_at            BIGINT,
  CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'lost')))
);
CREATE INDEX flows_by_status ON flows (status, id);
CREATE INDEX flows_by_owner ON flows (owner, id);

CREATE TABLE sessions (
  id            TEXT COLLATE "C" PRIMARY KEY,
  key           TEXT COLLATE "C" NOT NULL UNIQUE,
  agent         TEXT COLLATE "C" NOT NULL,
  parent_key    TEXT COLLATE "C",
  created_at    BIGINT NOT NULL,
  digest        BYTEA NOT NULL,
  status        TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('idle', 'processing', 'draining', 'interrupted', 'waiting')),
  waits_on      TEXT COLLATE "C",
  origin        BYTEA,
  task_id       TEXT COLLATE "C",
  last_position BIGINT NOT NULL,
  queued        BIGINT NOT NULL CHECK (queued >= 0),
  ready_at      BIGINT,
  updated_at    BIGINT NOT NULL,
  CHECK (status <> 'idle' OR task_id IS NULL),
  CHECK ((ready_at IS NOT NULL) = (task_id IS NULL AND queued > 0))
);
CREATE INDEX sessions_by_status ON sessions (status, id);
CREATE INDEX sessions_by_time ON sessions (updated_at, id);
CREATE INDEX sessions_by_agent ON sessions (agent, updated_at, id);
-- A task answers in one session.
CREATE UNIQUE INDEX sessions_busy ON sessions (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX sessions_ready ON sessions (ready_at, id) WHERE ready_at IS NOT NULL;

CREATE TABLE messages (
  id                 TEXT COLLATE "C" PRIMARY KEY,
  session_key        TEXT COLLATE "C" NOT NULL,
  position           BIGINT NOT NULL,
  role               TEXT COLLATE "C" NOT NULL CHECK (role IN ('user', 'agent', 'system')),
  channel            TEXT COLLATE "C" NOT NULL,
  account_id         TEXT COLLATE "C" NOT NULL,
  channel_message_id TEXT COLLATE "C",
  origin             BYTEA,
  body               BYTEA NOT NULL,
  reply_to           TEXT COLLATE "C",
  created_at         BIGINT NOT NULL,
  digest             BYTEA NOT NULL,
  status             TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('queued', 'taken', 'answered', 'failed', 'noted')),
  task_id            TEXT COLLATE "C",
  updated_at         BIGINT NOT NULL,
  UNIQUE (session_key, position)
);
-- A message enters once, however often its channel hands it in.
CREATE UNIQUE INDEX messages_once ON messages (channel, account_id, channel_message_id)
  WHERE channel_message_id IS NOT NULL;
CREATE INDEX messages_queued ON messages (session_key, position) WHERE status = 'queued';
CREATE INDEX messages_taken ON messages (task_id) WHERE status = 'taken';
-- What nobody has to answer any more, for retention.
CREATE INDEX messages_settled ON messages (updated_at, id) WHERE status IN ('answered', 'failed', 'noted');

CREATE TABLE firings (
  id            TEXT COLLATE "C" PRIMARY KEY,
  schedule      TEXT COLLATE "C" NOT NULL,
  occurrence_at BIGINT NOT NULL,
  session_key   TEXT COLLATE "C" NOT NULL,
  created_at    BIGINT NOT NULL,
  digest        BYTEA NOT NULL,
  status        TEXT COLLATE "C" NOT NULL
    CHECK (status IN ('due', 'running', 'done', 'failed', 'missed', 'requeued')),
  message_id    TEXT COLLATE "C" UNIQUE,
  task_id       TEXT COLLATE "C",
  is_retry      BIGINT NOT NULL CHECK (is_retry IN (0, 1)),
  updated_at    BIGINT NOT NULL,
  UNIQUE (schedule, occurrence_at)
);
CREATE INDEX firings_open ON firings (occurrence_at, id) WHERE status IN ('due', 'running', 'requeued');
CREATE INDEX firings_settled ON firings (updated_at, id) WHERE status IN ('done', 'failed', 'missed');

CREATE TABLE wakes (
  id            TEXT COLLATE "C" PRIMARY KEY,
  task_id       TEXT COLLATE "C" NOT NULL,
  checkpoint_id TEXT COLLATE "C",
  reason        TEXT COLLATE "C" NOT NULL
    CHECK (reason IN ('timeout_recovery', 'dependency_ready', 'scheduled_progress')),
  attempt       BIGINT NOT NULL,
  created_at    BIGINT NOT NULL,
  digest        BYTEA NOT NULL,
  status        TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'fired', 'cancelled', 'expired')),
  due_at        BIGINT NOT NULL,
  updated_at    BIGINT NOT NULL
);
CREATE INDEX wakes_due ON wakes (due_at, id) WHERE status = 'pending';
CREATE INDEX wakes_by_task ON wakes (task_id, id);

CREATE TABLE restarts (
  id           TEXT COLLATE "C" PRIMARY KEY,
  boot_id      TEXT COLLATE "C" NOT NULL,
  place        TEXT COLLATE "C" NOT NULL,
  requested_at BIGINT NOT NULL,
  manifest     BYTEA NOT NULL,
  digest       BYTEA NOT NULL,
  status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('draining', 'drained', 'blocked', 'recovered')),
  triggers     BYTEA NOT NULL,
  outcome      BYTEA,
  recovered_by TEXT COLLATE "C",
  updated_at   BIGINT NOT NULL
);
CREATE INDEX restarts_open ON restarts (id) WHERE status IN ('draining', 'drained');
CREATE INDEX restarts_settled ON restarts (updated_at, id) WHERE status IN ('blocked', 'recovered');

CREATE TABLE blobs (
  digest     TEXT COLLATE "C" PRIMARY KEY,
  size_bytes BIGINT NOT NULL,
  body       BYTEA NOT NULL
);

CREATE TABLE blob_uses (
  task_id TEXT COLLATE "C" NOT NULL,
  digest  TEXT COLLATE "C" NOT NULL REFERENCES blobs (digest),
  PRIMARY KEY (task_id, digest)
);
CREATE INDEX blob_uses_by_digest ON blob_uses (digest);

CREATE TABLE ledger_events (
  position   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  txid       XID8 NOT NULL DEFAULT pg_current_xact_id(),
  at         BIGINT NOT NULL,
  kind       TEXT COLLATE "C" NOT NULL,
  task_id    TEXT COLLATE "C",
  subject_id TEXT COLLATE "C" NOT NULL,
  facts      BYTEA NOT NULL
);
-- Ids appear out of order here; followers read below the oldest transaction still open.
CREATE INDEX ledger_events_feed ON ledger_events (txid, position);
CREATE INDEX ledger_events_by_task ON ledger_events (task_id, position);
CREATE INDEX ledger_events_by_time ON ledger_events (at);

CREATE TABLE counters (
  noun   TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  amount BIGINT NOT NULL,
  PRIMARY KEY (noun, status)
);

-- Writers append; one of them folds the deltas into counters, readers add both: no row that all of them fight for.
CREATE TABLE counter_deltas (
  id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  noun   TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  amount BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The number of the last transaction that each session committed: when the answer to a COMMIT is lost, this
-- tells whether it happened. Each row is locked from the beginning of a transaction to its end.
CREATE TABLE commit_receipts (
  id         TEXT COLLATE "C" PRIMARY KEY,
  number     BIGINT NOT NULL,
  written_at BIGINT NOT NULL
);

-- The clock of leases. Every gateway asks the same one; tests replace it.
CREATE FUNCTION holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE
  AS $$ SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) $$;
