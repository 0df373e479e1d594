-- import_losses: what did imports leave out?
-- grain: one row per format and mapping version
-- inputs: imports
-- owner: pipelines
-- range: none: sources have no day
-- columns:
--   format            source format
--   mapping_version   version of the importer's mapping
--   sources           files
--   bytes             bytes of the sources
--   trajectories      trajectories they gave
--   records_seen      records
--   records_mapped    records that became events
--   records_kept_raw  records kept verbatim
--   records_skipped   records left out
--   mapped_share      0 to 1: mapped / seen
-- caveats: a record kept raw is not lost (it is a SourceKept event); why records were skipped stands in the column
--   report of imports.
select
    format,
    mapping_version,
    count(*) as sources,
    sum(bytes) as bytes,
    sum(trajectories) as trajectories,
    sum(records_seen) as records_seen,
    sum(records_mapped) as records_mapped,
    sum(records_kept_raw) as records_kept_raw,
    sum(records_skipped) as records_skipped,
    sum(records_mapped) / nullif(sum(records_seen), 0) as mapped_share
from imports
group by format, mapping_version
order by format, mapping_version
