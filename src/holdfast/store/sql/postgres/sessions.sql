-- name: hold_session
-- The session of a key; keeps its messages in order until the transaction ends.
-- Differs: the row is locked, so that two posters cannot be given the same place.
SELECT * FROM sessions WHERE key = :key FOR NO KEY UPDATE;
