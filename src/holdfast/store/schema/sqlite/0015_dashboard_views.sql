-- The views of campaigns are made beside the migrations, from views.sql. This index serves them and state files: the
-- events of a campaign itself, without those of its tasks.
CREATE INDEX ledger_events_of_campaigns ON ledger_events (subject_id, position)
  WHERE subject_id >= 'camp_' AND subject_id < 'camp`';
