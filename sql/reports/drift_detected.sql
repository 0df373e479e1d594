-- drift_detected: what had changed when trajectories were resumed, and what was chosen?
-- grain: one row per kind of drift, component and choice
-- inputs: events
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   what          model | prompt | tool_schema | context | contract | workspace | message
--   component     part that differs; empty where there is none
--   choice        pin | switch | refuse | recorded
--   times         DriftDetected events
--   trajectories  trajectories concerned
--   first_at      earliest
--   last_at       latest
-- caveats: found by comparing with the log, never by guessing: what the log does not name (a model that changed
--   behind its name) is not here.
select
    payload ->> '$.what' as what,
    coalesce(payload ->> '$.component', '') as component,
    payload ->> '$.choice' as choice,
    count(*) as times,
    count(distinct (tenant, trajectory_id)) as trajectories,
    min(recorded_at) as first_at,
    max(recorded_at) as last_at
from events
where event_type = 'DriftDetected'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by payload ->> '$.what', coalesce(payload ->> '$.component', ''), payload ->> '$.choice'
order by times desc, what, component, choice
