-- What stays of the steps of a finished turn, for people: no replay reads it, so it is apart from what replays read.
-- The beginning of each result and of the arguments is with the turn itself, unless it must be sealed.
CREATE TABLE kept_steps (
  task_id TEXT COLLATE "C" NOT NULL,
  loop    TEXT COLLATE "C" NOT NULL,
  seq     BIGINT NOT NULL,
  body    BYTEA NOT NULL,
  digest  BYTEA NOT NULL,
  PRIMARY KEY (task_id, loop, seq)
);
-- How the arguments of a step begin, redacted; null for a step without arguments.
ALTER TABLE steps ADD COLUMN arguments BYTEA;
