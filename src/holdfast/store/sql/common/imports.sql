-- name: insert_imported_record
-- What became of one record of another gateway; the first import of it wins.
INSERT INTO imported_records
VALUES (:source, :noun, :source_id, :record_id, :source_run_id, :imported_at, :first_batch_id, :digest,
        :row_digest, :batch_id, :rest, :expires_at)
ON CONFLICT (source, noun, source_id) DO NOTHING;

-- name: get_imported_records
-- Those of these records that were imported before.
SELECT * FROM imported_records
 WHERE source = :source AND noun = :noun AND source_id IN :ids[]
 ORDER BY source_id;

-- name: renew_imported_record
-- The ledger took over a newer state of the record.
UPDATE imported_records
   SET row_digest = :row_digest, batch_id = :batch_id, rest = :rest
 WHERE source = :source AND noun = :noun AND source_id = :source_id;

-- name: records_with_source_id
-- The records that have this id in the gateway they came from.
SELECT record_id FROM imported_records
 WHERE source_id = :source_id AND noun = :noun AND expires_at IS NULL
 ORDER BY record_id LIMIT :limit;

-- name: records_with_source_run
-- The same for the id of a run.
SELECT record_id FROM imported_records
 WHERE source_run_id IS NOT NULL AND source_run_id = :source_id AND noun = :noun AND expires_at IS NULL
 ORDER BY record_id LIMIT :limit;

-- name: bury_imported_records
-- The records are deleted; until then, an import of the same database does not create them again.
UPDATE imported_records SET expires_at = :expires_at, rest = NULL WHERE record_id IN :ids[];

-- name: delete_expired_imports
-- Rows whose record was deleted long ago.
DELETE FROM imported_records WHERE expires_at IS NOT NULL AND expires_at <= :now;
