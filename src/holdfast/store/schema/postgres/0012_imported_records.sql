-- Which record of this ledger came from which record of another gateway, so that an import may be repeated.
-- A digest covers the columns above it; what changes during a record's life stands below it.
CREATE TABLE imported_records (
  source         TEXT COLLATE "C" NOT NULL CHECK (source IN ('openclaw')),
  noun           TEXT COLLATE "C" NOT NULL CHECK (noun IN ('task', 'flow')),
  source_id      TEXT COLLATE "C" NOT NULL,
  record_id      TEXT COLLATE "C" NOT NULL,
  source_run_id  TEXT COLLATE "C",
  imported_at    BIGINT NOT NULL,
  -- The write that created the record, and below the one that last changed it.
  first_batch_id TEXT COLLATE "C" NOT NULL,
  digest         BYTEA NOT NULL,
  -- Of the other gateway's record as this ledger last took it over: an equal one changes nothing.
  row_digest     BYTEA NOT NULL,
  batch_id       TEXT COLLATE "C" NOT NULL,
  -- What the record itself has no column for, as JSON; null for a task, which has it in its arguments.
  rest           BYTEA,
  -- After retention has deleted the record, this row keeps an import from creating it again until then.
  expires_at     BIGINT,
  PRIMARY KEY (source, noun, source_id)
);
CREATE INDEX imported_records_by_source ON imported_records (source_id, record_id);
CREATE INDEX imported_records_by_run ON imported_records (source_run_id, record_id) WHERE source_run_id IS NOT NULL;
CREATE INDEX imported_records_by_record ON imported_records (record_id);
CREATE INDEX imported_records_to_clean ON imported_records (expires_at) WHERE expires_at IS NOT NULL;
