-- The views that show campaigns under the names of seed 002, for dashboards and for a look with any SQL tool.
-- Those that begin with `campaign_` hold all campaigns; the others hold the newest one.
-- A name in braces is that of another view: a name that the user's own table has is not taken.
-- SQLite joins in the order of a CROSS JOIN, so an item is found by its id; PostgreSQL finds the order itself.
-- Words in capitals before a bracket are spelled out for each database by `dashboard_views.py`.

-- name: campaign_repos
-- The items of all campaigns.
SELECT item.item_id AS repo_id, item.name AS name, item.priority AS priority, item.category AS category,
       ISO(item.created_at) AS created_at,
       COALESCE((SELECT MAX(ISO(one.updated_at))
                   FROM campaign_phases AS phase CROSS JOIN item_phases AS one
                  WHERE phase.campaign_id = item.campaign_id
                    AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place),
                ISO(item.created_at)) AS updated_at,
       (SELECT MAX(saved.id)
          FROM campaign_phases AS phase CROSS JOIN item_phases AS one CROSS JOIN run_checkpoints AS saved
         WHERE phase.campaign_id = item.campaign_id
           AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place
           AND saved.task_id = one.task_id) AS checkpoint_id,
       item.campaign_id AS campaign_id
  FROM campaign_items AS item

-- name: campaign_analysis_state
-- Items in the phase `analysis`, else in the first one.
SELECT item.item_id AS repo_id, one.status AS status, one.percent AS progress_percent,
       ISO(one.started_at) AS started_at, ISO(one.ended_at) AS completed_at, TEXT(one.summary) AS result_json,
       one.error AS error_message, ISO(one.updated_at) AS updated_at,
       (SELECT MAX(saved.id) FROM run_checkpoints AS saved WHERE saved.task_id = one.task_id) AS checkpoint_id,
       one.campaign_id AS campaign_id
  FROM campaign_phases AS phase CROSS JOIN campaign_items AS item CROSS JOIN item_phases AS one
 WHERE phase.number = COALESCE((SELECT named.number FROM campaign_phases AS named
                                 WHERE named.campaign_id = phase.campaign_id AND named.name = 'analysis'), 0)
   AND item.campaign_id = phase.campaign_id
   AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place

-- name: campaign_migration_state
-- Items in the phase `migration`, else in the second one; `phase` is the stage that each is in.
SELECT item.item_id AS repo_id, one.status AS status, one.stage AS phase, one.percent AS progress_percent,
       ISO(one.started_at) AS started_at, ISO(one.ended_at) AS completed_at, TEXT(one.summary) AS result_json,
       one.error AS error_message, ISO(one.updated_at) AS updated_at,
       (SELECT MAX(saved.id) FROM run_checkpoints AS saved WHERE saved.task_id = one.task_id) AS checkpoint_id,
       one.campaign_id AS campaign_id
  FROM campaign_phases AS phase CROSS JOIN campaign_items AS item CROSS JOIN item_phases AS one
 WHERE phase.number = COALESCE((SELECT named.number FROM campaign_phases AS named
                                 WHERE named.campaign_id = phase.campaign_id AND named.name = 'migration'), 1)
   AND item.campaign_id = phase.campaign_id
   AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place

-- name: campaign_agents
-- One agent for each item in each phase.
SELECT item.item_id || '-' || phase.role AS agent_id, phase.role AS type, item.item_id AS assigned_repo_id,
       CASE one.status WHEN 'running' THEN 'active' WHEN 'paused' THEN 'paused' WHEN 'failed' THEN 'error'
                       ELSE 'idle' END AS status,
       CASE WHEN one.started_at IS NULL THEN NULL
            WHEN run.beat_at > one.updated_at THEN ISO(run.beat_at)
            ELSE ISO(one.updated_at) END AS last_heartbeat,
       ISO(one.updated_at) AS updated_at,
       (SELECT MAX(saved.id) FROM run_checkpoints AS saved WHERE saved.task_id = one.task_id) AS checkpoint_id,
       one.campaign_id AS campaign_id
  FROM campaign_phases AS phase CROSS JOIN campaign_items AS item CROSS JOIN item_phases AS one
  LEFT JOIN runs AS run
    ON run.task_id = one.task_id
       AND run.status IN ('queued', 'running', 'waiting', 'paused_for_restart', 'resuming')
 WHERE item.campaign_id = phase.campaign_id
   AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place

-- name: campaign_saved_checkpoints
-- The checkpoints of campaigns; `state_snapshot` is their summary.
SELECT saved.id AS checkpoint_id, saved.kind AS checkpoint_type, ISO(saved.created_at) AS created_at,
       TEXT(saved.summary) AS state_snapshot, TRUTH(saved.recoverable) AS recoverable,
       ISO(saved.created_at) AS updated_at, saved.campaign_id AS campaign_id
  FROM campaign_checkpoints AS saved

-- name: campaign_events
-- The events of campaigns: of the tasks of their items, and of the campaigns themselves.
SELECT 'event_' || event.position AS event_id, ISO(event.at) AS timestamp, event.kind AS event_type,
       item.item_id || '-' || phase.role AS agent_id, item.item_id AS repo_id, TEXT(event.facts) AS details,
       ISO(event.at) AS updated_at,
       CASE WHEN event.subject_id >= 'ckpt_' AND event.subject_id < 'ckpt`' THEN event.subject_id END AS checkpoint_id,
       one.campaign_id AS campaign_id
  FROM campaign_phases AS phase CROSS JOIN campaign_items AS item CROSS JOIN item_phases AS one
 CROSS JOIN ledger_events AS event
 WHERE item.campaign_id = phase.campaign_id
   AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place
   AND event.task_id = one.task_id
 UNION ALL
SELECT 'event_' || event.position, ISO(event.at), event.kind, NULL, NULL, TEXT(event.facts), ISO(event.at),
       CASE WHEN event.subject_id >= 'ckpt_' AND event.subject_id < 'ckpt`' THEN event.subject_id END,
       task.campaign_id
  FROM tasks AS task
  JOIN ledger_events AS event ON event.task_id = task.id
 WHERE task.campaign_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM item_phases AS one WHERE one.task_id = task.id)
 UNION ALL
SELECT 'event_' || event.position, ISO(event.at), event.kind, NULL, NULL, TEXT(event.facts), ISO(event.at),
       NULL, campaign.id
  FROM campaigns AS campaign
  JOIN ledger_events AS event
    ON event.subject_id = campaign.id AND event.subject_id >= 'camp_' AND event.subject_id < 'camp`'
       AND event.task_id IS NULL

-- name: campaign_agent_states
-- The state of each agent that has begun, as in its state file.
SELECT item.item_id || '-' || phase.role AS agent_id,
       WRITTEN(OBJECT(
         'agent_id', item.item_id || '-' || phase.role,
         'repo_name', item.name,
         'status', CASE one.status WHEN 'done' THEN 'completed' ELSE one.status END,
         'created_at', SECOND(COALESCE(one.started_at, item.created_at)),
         'updated_at', SECOND(one.updated_at),
         'work', OBJECT(
           'phase', phase.name, 'subtask', COALESCE(one.subtask, one.stage), 'progress_percent', one.percent,
           'items_total', COALESCE(one.items_total, 0), 'items_completed', COALESCE(one.items_done, 0),
           'items_failed', COALESCE(one.items_failed, 0)),
         'result', JSON(CASE WHEN one.status IN ('done', 'failed') THEN OBJECT(
           'success', BOOL(one.status = 'done'),
           'output_path', CASE WHEN one.status = 'done' AND one.summary IS NOT NULL
                               THEN 'state/campaigns/' || campaign.name || '/artifacts/'
                                    -- Where another phase, or a report, could have the same file, the phase has a folder.
                                    || CASE WHEN phase.name = 'report'
                                              OR '-report' = SUBSTR(phase.name, LENGTH(phase.name) - 6)
                                              OR EXISTS (
                                                   SELECT 1 FROM campaign_phases AS other
                                                    WHERE other.campaign_id = phase.campaign_id
                                                      AND other.name <> phase.name
                                                      AND ('-' || phase.name = SUBSTR(
                                                             other.name, LENGTH(other.name) - LENGTH(phase.name))
                                                        OR '-' || other.name = SUBSTR(
                                                             phase.name, LENGTH(phase.name) - LENGTH(other.name))))
                                            THEN phase.name || '/' ELSE '' END
                                    || item.item_id || '-' || phase.name || '.json' END,
           'summary', DOC(one.summary)) END),
         'checkpoint', OBJECT(
           'last_action', one.last_action, 'last_action_time', SECOND(one.last_action_at),
           'can_resume', BOOL(one.status IN ('running', 'paused', 'failed')),
           'resume_point', CASE WHEN one.status IN ('running', 'paused', 'failed')
                                THEN COALESCE(one.stage, one.last_action) END),
         'errors', JSON(CASE WHEN one.error IS NULL THEN LIST() ELSE LIST(one.error) END),
         'checkpoint_time', SECOND(one.updated_at))) AS state_json,
       ISO(one.updated_at) AS updated_at, one.campaign_id AS campaign_id
  FROM campaigns AS campaign CROSS JOIN campaign_phases AS phase CROSS JOIN campaign_items AS item
 CROSS JOIN item_phases AS one
 WHERE phase.campaign_id = campaign.id AND item.campaign_id = phase.campaign_id
   AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = item.place
   AND one.attempt > 0

-- name: campaign_batch_progress
-- How far each batch is in each phase. A batch is shown by its first item.
SELECT 'batch-' || PAD(item.batch) AS batch_id,
       WRITTEN(OBJECT(
         'batch_id', 'batch-' || PAD(item.batch), 'priority', item.priority,
         'phases', JSON((
           SELECT OBJECTS(phase.name, JSON((
                    SELECT OBJECT(
                             'total', COUNT(*),
                             'done', SUM(CASE WHEN one.status = 'done' THEN 1 ELSE 0 END),
                             'in_progress', SUM(CASE WHEN one.status = 'running' THEN 1 ELSE 0 END),
                             'pending', SUM(CASE WHEN one.status = 'pending' THEN 1 ELSE 0 END),
                             'paused', SUM(CASE WHEN one.status = 'paused' THEN 1 ELSE 0 END),
                             'failed', SUM(CASE WHEN one.status = 'failed' THEN 1 ELSE 0 END))
                      FROM campaign_items AS member CROSS JOIN item_phases AS one
                     WHERE member.campaign_id = item.campaign_id AND member.batch = item.batch
                       AND one.campaign_id = item.campaign_id AND one.phase = phase.number
                       AND one.place = member.place)))
             FROM campaign_phases AS phase
            WHERE phase.campaign_id = item.campaign_id)),
         -- As many as in the file, `MOST_REPOS`. The plus keeps SQLite from reading the whole campaign in its order.
         'repos', JSON((
           SELECT GATHER(member.item_id)
             FROM (SELECT one_of.item_id FROM campaign_items AS one_of
                    WHERE one_of.campaign_id = item.campaign_id AND one_of.batch = item.batch
                    ORDER BY +one_of.place LIMIT 1000) AS member)))) AS progress_json,
       (SELECT MAX(ISO(one.updated_at))
          FROM campaign_phases AS phase CROSS JOIN campaign_items AS member CROSS JOIN item_phases AS one
         WHERE phase.campaign_id = item.campaign_id
           AND member.campaign_id = item.campaign_id AND member.batch = item.batch
           AND one.campaign_id = item.campaign_id AND one.phase = phase.number AND one.place = member.place)
         AS updated_at,
       item.campaign_id AS campaign_id
  FROM campaign_items AS item
 WHERE NOT EXISTS (SELECT 1 FROM campaign_items AS earlier
                    WHERE earlier.campaign_id = item.campaign_id AND earlier.batch = item.batch
                      AND earlier.place < item.place)

-- name: repos
-- The items of the newest campaign.
SELECT * FROM {campaign_repos} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: analysis_state
-- Its items in the phase `analysis`.
SELECT * FROM {campaign_analysis_state} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: migration_state
-- Its items in the phase `migration`.
SELECT * FROM {campaign_migration_state} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: agents
-- Its agents.
SELECT * FROM {campaign_agents} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: checkpoints
-- Its checkpoints.
SELECT * FROM {campaign_saved_checkpoints} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: events
-- Its events.
SELECT * FROM {campaign_events} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: agent_states
-- The states of its agents.
SELECT * FROM {campaign_agent_states} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)

-- name: batch_progress
-- How far its batches are.
SELECT * FROM {campaign_batch_progress} WHERE campaign_id = (SELECT MAX(id) FROM campaigns)
