-- name: insert_imported_record_many
-- What became of many records of another gateway; the first import of each wins.
-- Only: SQLite runs the statement of one row once for each.
INSERT INTO imported_records
SELECT * FROM unnest(
         CAST(:source AS text[]), CAST(:noun AS text[]), CAST(:source_id AS text[]), CAST(:record_id AS text[]),
         CAST(:source_run_id AS text[]), CAST(:imported_at AS bigint[]),
         CAST(:first_batch_id AS text[]), CAST(:digest AS bytea[]), CAST(:row_digest AS bytea[]), CAST(:batch_id AS text[]), CAST(:rest AS bytea[]),
         CAST(:expires_at AS bigint[]))
ON CONFLICT (source, noun, source_id) DO NOTHING;
