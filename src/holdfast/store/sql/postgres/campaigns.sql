-- name: lock_campaign
-- One campaign, locked until this transaction ends: nothing of it is started meanwhile.
-- Differs: the transaction itself does not exclude other writers, so the row is locked.
SELECT * FROM campaigns WHERE id = :id FOR UPDATE;

-- name: share_campaign
-- One campaign that must not change until this transaction ends; several may share it.
-- Differs: the transaction itself does not exclude other writers, so the row is locked against changes.
SELECT * FROM campaigns WHERE id = :id FOR SHARE;

-- name: insert_campaign_item_many
-- Many items.
-- Only: one statement for all rows is several times as fast here as one statement for each.
INSERT INTO campaign_items
SELECT * FROM unnest(
         CAST(:campaign_id AS text[]), CAST(:place AS bigint[]), CAST(:item_id AS text[]), CAST(:name AS text[]),
         CAST(:priority AS text[]), CAST(:category AS text[]), CAST(:batch AS bigint[]),
         CAST(:contents AS bytea[]), CAST(:created_at AS bigint[]), CAST(:digest AS bytea[]));

-- name: insert_campaign_phase_many
-- The phases of a campaign, for views.
-- Only: one statement for all rows is several times as fast here as one statement for each.
INSERT INTO campaign_phases
SELECT * FROM unnest(
         CAST(:campaign_id AS text[]), CAST(:number AS bigint[]), CAST(:name AS text[]), CAST(:role AS text[]),
         CAST(:task AS text[]), CAST(:stages AS text[]));

-- name: insert_item_phase_many
-- Many items in a phase.
-- Only: one statement for all rows is several times as fast here as one statement for each.
INSERT INTO item_phases (campaign_id, phase, place, priority, category, batch, status, unmet, updated_at, attempt)
SELECT given.*, 0 FROM unnest(
         CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
         CAST(:priority AS text[]), CAST(:category AS text[]), CAST(:batch AS bigint[]), CAST(:status AS text[]),
         CAST(:unmet AS bigint[]), CAST(:updated_at AS bigint[])) AS given;

-- name: startable_item_phases
-- The next item-phases of a phase to start with their items, the most urgent first, locked until this transaction ends.
-- Differs: many processes start items, so rows that another one is starting are skipped, not waited for.
SELECT item_phases.*, campaign_items.*
  FROM item_phases
  LEFT JOIN campaign_items
    ON campaign_items.campaign_id = item_phases.campaign_id AND campaign_items.place = item_phases.place
 WHERE item_phases.campaign_id = :campaign_id AND item_phases.phase = :phase AND item_phases.status = 'pending'
   AND item_phases.unmet = 0
 ORDER BY item_phases.priority, item_phases.batch, item_phases.place LIMIT :limit
   FOR NO KEY UPDATE OF item_phases SKIP LOCKED;

-- name: start_item_phase_many
-- They have slots, and their tasks are created or reopened in this transaction, which holds the rows.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: item pending -> running
UPDATE item_phases
   SET status = 'running', task_id = given.task_id, attempt = given.attempt, note = given.note, error = NULL,
       updated_at = given.now, started_at = COALESCE(started_at, given.now), ended_at = NULL,
       percent = CASE WHEN item_phases.task_id = given.task_id THEN percent ELSE 0 END,
       stage = CASE WHEN item_phases.task_id = given.task_id THEN item_phases.stage ELSE given.stage END,
       subtask = CASE WHEN item_phases.task_id = given.task_id THEN subtask END,
       items_total = CASE WHEN item_phases.task_id = given.task_id THEN items_total END,
       items_done = CASE WHEN item_phases.task_id = given.task_id THEN items_done END,
       items_failed = CASE WHEN item_phases.task_id = given.task_id THEN items_failed END,
       last_action = CASE WHEN item_phases.task_id = given.task_id THEN last_action END,
       last_action_at = CASE WHEN item_phases.task_id = given.task_id THEN last_action_at END
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:task_id AS text[]), CAST(:attempt AS bigint[]), CAST(:note AS text[]), CAST(:stage AS text[]),
              CAST(:now AS bigint[]))
         AS given (campaign_id, phase, place, task_id, attempt, note, stage, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.status = 'pending';

-- name: item_phases_of_tasks
-- The item-phases of these tasks, in a fixed order, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the rows are locked.
SELECT * FROM item_phases
 WHERE task_id IS NOT NULL AND task_id IN :ids[]
 ORDER BY campaign_id, phase, place
   FOR NO KEY UPDATE;

-- name: end_item_phase_many
-- Their tasks have ended; the transaction holds the rows.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: item running|paused -> done|failed
UPDATE item_phases
   SET status = given.ended_as, summary = given.summary, error = given.error, goes_on = 0, updated_at = given.now,
       ended_at = given.now, percent = CASE WHEN given.ended_as = 'done' THEN 100 ELSE percent END,
       last_action = given.last_action, last_action_at = given.last_action_at
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:to AS text[]), CAST(:summary AS bytea[]), CAST(:error AS text[]), CAST(:last_action AS text[]),
              CAST(:last_action_at AS bigint[]), CAST(:now AS bigint[]))
         AS given (campaign_id, phase, place, ended_as, summary, error, last_action, last_action_at, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.status IN ('running', 'paused');

-- name: note_item_phase_many
-- How far the tasks of several items are.
-- Only: one statement for all rows, which locks them in a fixed order first, so that two cannot deadlock.
WITH held AS MATERIALIZED (
  SELECT campaign_id, phase, place FROM item_phases
   WHERE task_id IS NOT NULL AND task_id = ANY (CAST(:task_id AS text[])) AND status IN ('running', 'paused')
   ORDER BY campaign_id, phase, place
     FOR NO KEY UPDATE)
UPDATE item_phases
   SET stage = COALESCE(given.stage, item_phases.stage),
       percent = CASE WHEN given.own_percent IS NOT NULL THEN given.own_percent
                      WHEN item_phases.items_total IS NULL THEN COALESCE(given.percent, item_phases.percent)
                      ELSE item_phases.percent END,
       subtask = COALESCE(given.subtask, item_phases.subtask),
       items_total = COALESCE(given.items_total, item_phases.items_total),
       items_done = COALESCE(given.items_done, item_phases.items_done),
       items_failed = COALESCE(given.items_failed, item_phases.items_failed),
       last_action = COALESCE(given.last_action, item_phases.last_action),
       last_action_at = COALESCE(given.last_action_at, item_phases.last_action_at),
       note = COALESCE(given.note, item_phases.note), updated_at = given.now
  FROM held, unnest(
         CAST(:task_id AS text[]), CAST(:stage AS text[]), CAST(:own_percent AS bigint[]),
         CAST(:percent AS bigint[]), CAST(:subtask AS text[]), CAST(:items_total AS bigint[]),
         CAST(:items_done AS bigint[]), CAST(:items_failed AS bigint[]), CAST(:last_action AS text[]),
         CAST(:last_action_at AS bigint[]), CAST(:note AS text[]), CAST(:now AS bigint[]))
         AS given (task_id, stage, own_percent, percent, subtask, items_total, items_done, items_failed,
                   last_action, last_action_at, note, now)
 WHERE item_phases.campaign_id = held.campaign_id AND item_phases.phase = held.phase
   AND item_phases.place = held.place AND item_phases.task_id = given.task_id
   AND item_phases.status IN ('running', 'paused');

-- name: tell_step_of_item_many
-- The steps that the tasks of several items saved last.
-- A newer one stays: a worker that was frozen may write this late.
-- Only: one statement for all rows, which locks them in a fixed order first, so that two cannot deadlock.
WITH held AS MATERIALIZED (
  SELECT campaign_id, phase, place FROM item_phases
   WHERE task_id IS NOT NULL AND task_id = ANY (CAST(:task_id AS text[])) AND status IN ('running', 'paused')
   ORDER BY campaign_id, phase, place
     FOR NO KEY UPDATE)
UPDATE item_phases
   SET last_action = given.name, last_action_at = given.saved_at, updated_at = given.now
  FROM held, unnest(CAST(:task_id AS text[]), CAST(:name AS text[]), CAST(:saved_at AS bigint[]),
                    CAST(:now AS bigint[]))
         AS given (task_id, name, saved_at, now)
 WHERE item_phases.campaign_id = held.campaign_id AND item_phases.phase = held.phase
   AND item_phases.place = held.place AND item_phases.task_id = given.task_id
   AND item_phases.status IN ('running', 'paused')
   AND (item_phases.last_action_at IS NULL OR item_phases.last_action_at < given.saved_at);

-- name: meet_phase_need_many
-- One of the phases that several item-phases need is done.
-- Only: one statement for all rows is several times as fast here as one statement for each.
UPDATE item_phases SET unmet = unmet - 1, updated_at = given.now
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:now AS bigint[])) AS given (campaign_id, phase, place, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.unmet > 0;

-- name: lock_item_phases
-- The item-phases of a phase at these places, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the rows are locked.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase
   AND place IN (SELECT place FROM campaign_items WHERE campaign_id = :campaign_id AND item_id IN :ids[])
 ORDER BY place
   FOR NO KEY UPDATE OF item_phases;

-- name: lock_item_phases_in_status
-- Some item-phases of a phase that are in a status, locked until this transaction ends.
-- Differs: the transaction itself does not exclude other writers, so the rows are locked.
SELECT * FROM item_phases
 WHERE campaign_id = :campaign_id AND phase = :phase AND status = :status AND place > :after
 ORDER BY place LIMIT :limit
   FOR NO KEY UPDATE;

-- name: item_phases_going_on
-- Those that were paused with their campaign, locked until this transaction ends.
-- Differs: many processes look for them, so rows that another one holds are skipped, not waited for.
SELECT * FROM item_phases WHERE campaign_id = :campaign_id AND goes_on = 1 ORDER BY phase, place LIMIT :limit
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: pause_item_phase_many
-- Several start no more; the transaction holds the rows.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: item pending|running|failed -> paused
UPDATE item_phases
   SET status = 'paused', goes_on = given.goes_on, note = given.note, updated_at = given.now, ended_at = NULL
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:goes_on AS bigint[]), CAST(:note AS text[]), CAST(:now AS bigint[]))
         AS given (campaign_id, phase, place, goes_on, note, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.status IN ('pending', 'running', 'failed');

-- name: go_on_item_phase_many
-- Several paused ones are to be started again; the transaction holds the rows.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: item paused -> pending
UPDATE item_phases
   SET status = 'pending', goes_on = 0, updated_at = given.now
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:now AS bigint[])) AS given (campaign_id, phase, place, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.status = 'paused';

-- name: release_slot_many
-- Several tasks leave one slot each.
-- Only: one statement for all rows is several times as fast here as one statement for each.
UPDATE campaign_slots SET task_id = NULL
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:scope AS text[]), CAST(:number AS bigint[]),
              CAST(:task_id AS text[])) AS given (campaign_id, scope, number, task_id)
 WHERE campaign_slots.campaign_id = given.campaign_id AND campaign_slots.scope = given.scope
   AND campaign_slots.number = given.number AND campaign_slots.task_id = given.task_id;

-- name: retry_item_phase_many
-- Several item-phases are to be started again.
-- Only: one statement for all rows is several times as fast here as one statement for each.
-- moves: item failed -> pending
UPDATE item_phases
   SET status = 'pending', updated_at = given.now
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:phase AS bigint[]), CAST(:place AS bigint[]),
              CAST(:now AS bigint[])) AS given (campaign_id, phase, place, now)
 WHERE item_phases.campaign_id = given.campaign_id AND item_phases.phase = given.phase
   AND item_phases.place = given.place AND item_phases.status = 'failed';

-- name: insert_slot_many
-- The slots of a limit; existing ones stay as they are.
-- Only: one statement for all rows is several times as fast here as one statement for each.
INSERT INTO campaign_slots
SELECT given.campaign_id, given.scope, given.number, NULL
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:scope AS text[]), CAST(:number AS bigint[]))
         AS given (campaign_id, scope, number)
ON CONFLICT DO NOTHING;

-- name: free_slots
-- Free slots of one scope, locked until this transaction ends.
-- Differs: many processes take slots, so slots that another one is taking are skipped, not waited for.
SELECT number FROM campaign_slots
 WHERE campaign_id = :campaign_id AND scope = :scope AND task_id IS NULL
 ORDER BY number LIMIT :limit
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: take_slot_many
-- Several tasks hold a slot each from now on; the transaction holds the rows.
-- Only: one statement for all rows is several times as fast here as one statement for each.
UPDATE campaign_slots SET task_id = given.task_id
  FROM unnest(CAST(:campaign_id AS text[]), CAST(:scope AS text[]), CAST(:number AS bigint[]),
              CAST(:task_id AS text[])) AS given (campaign_id, scope, number, task_id)
 WHERE campaign_slots.campaign_id = given.campaign_id AND campaign_slots.scope = given.scope
   AND campaign_slots.number = given.number AND campaign_slots.task_id IS NULL;

-- name: counts_between
-- The counts whose names lie between two texts, in the order of their names.
-- Differs: the folded counts plus the rows appended since.
SELECT noun, status, CAST(SUM(amount) AS bigint)
  FROM (SELECT noun, status, amount FROM counters WHERE noun >= :low AND noun < :high
         UNION ALL
        SELECT noun, status, amount FROM counter_deltas WHERE noun >= :low AND noun < :high) AS both_parts
 GROUP BY noun, status ORDER BY noun, status LIMIT :limit;
