-- name: insert_run_many
-- One of many new runs; an existing id changes nothing.
-- Differs: here it is run row by row; and it returns nothing, which is faster.
INSERT INTO runs
VALUES (:id, :task_id, :task_name, :number, :resumes_run_id, :checkpoint_id, :seed, :created_at, :digest,
        :status, :priority, :due_at, :queue, :is_alone, :idle_attempts, :claimed_by, :claim_token, :fence,
        :lease_until, :beat_at, :waits_on, :failure, :updated_at, :started_at, :ended_at)
ON CONFLICT (id) DO NOTHING;
