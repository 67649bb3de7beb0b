-- name: pause_agent
-- An agent of a gateway answers no messages from now on; the first reason stays.
INSERT INTO paused_agents VALUES (:name, :reason, :paused_by, :now) ON CONFLICT DO NOTHING;

-- name: unpause_agent
-- It answers again.
DELETE FROM paused_agents WHERE name = :name RETURNING name;

-- name: paused_agents
-- All of them; the settings of gateways have few agents.
SELECT * FROM paused_agents ORDER BY name LIMIT :limit;
