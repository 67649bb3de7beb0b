-- What stays of the steps of a finished turn, for people: no replay reads it, so it is apart from what replays read.
-- The beginning of each result and of the arguments is with the turn itself, unless it must be sealed.
CREATE TABLE kept_steps (
  task_id TEXT NOT NULL,
  loop    TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  body    BLOB NOT NULL,
  digest  BLOB NOT NULL,
  PRIMARY KEY (task_id, loop, seq)
) STRICT, WITHOUT ROWID;
-- How the arguments of a step begin, redacted; null for a step without arguments.
ALTER TABLE steps ADD COLUMN arguments BLOB;
