-- name: insert_task_many
-- One of many new tasks; an existing id changes nothing.
-- Differs: here it is run row by row; and it returns nothing, which is faster.
INSERT INTO tasks
VALUES (:id, :owner, :runtime, :name, :goal, :arguments, :origin, :session_key, :parent_task_id, :flow_id,
        :dedup_key, :notify, :created_at, :digest, :status, :priority, :waits_on, :progress, :result,
        :result_digest, :failure, :cancel_requested_at, :cancel_reason, :updated_at, :started_at, :ended_at,
        :cleanup_after, :campaign_id)
ON CONFLICT (id) DO NOTHING;

-- name: page_of_tasks_of_owner_in_status
-- Those of one owner in one status, newest first.
-- Differs: without statistics, this planner takes the index of owners alone unless it is told that few rows fit.
SELECT * FROM tasks
 WHERE owner = :owner AND unlikely(status = :status) AND id < :before AND id > :after
 ORDER BY id DESC LIMIT :limit;
