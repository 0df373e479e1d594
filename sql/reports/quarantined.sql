-- quarantined: what is in quarantine, and why?
-- grain: one row per reason
-- inputs: quarantine
-- owner: pipelines
-- range: started_on of the row; rows without one (segment_lost) always show
-- columns:
--   reason        superseded | held_back | conflict | segment_lost
--   rows          rows
--   trajectories  trajectories concerned
--   writers       journals concerned
--   lost_lsns     places in journals that are lost (segment_lost)
-- caveats: a lost range may hold events of any trajectory; when good bytes for it land, the next compaction takes
--   them and the row goes.
select
    reason,
    count(*) as rows,
    count(distinct (tenant, trajectory_id)) filter (where trajectory_id is not null) as trajectories,
    count(distinct writer) as writers,
    coalesce(sum(last_lsn - lsn + 1) filter (where reason = 'segment_lost'), 0) as lost_lsns
from quarantine
where started_on is null
    or (
        started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
    )
group by reason
order by rows desc, reason
