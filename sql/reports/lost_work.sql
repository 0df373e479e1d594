-- lost_work: how much work do crashes, roll-backs and lost leases cost?
-- grain: one row per UTC day of the start
-- inputs: trajectories, model_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   started_on          UTC day of the start
--   trajectories        trajectories
--   resumed             trajectories that were resumed
--   resumes             resumes
--   roll_backs          roll-backs
--   given_up_events     events that roll-backs left behind
--   given_up_tokens     input and output tokens of model calls left behind
--   superseded_events   events of workers that had lost their lease
--   conflicting_events  other events under a used key
--   held_back_events    events that wait for a missing one
-- caveats: superseded and conflicting rows are in quarantine, with their payloads; what a crash lost before it was
--   durable was never acknowledged and is not counted anywhere.
with left_behind as (
    select
        tenant,
        trajectory_id,
        sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) as tokens
    from model_calls
    where given_up
    group by tenant, trajectory_id
)
select
    started_on,
    count(*) as trajectories,
    count(*) filter (where resumes > 0) as resumed,
    sum(resumes) as resumes,
    sum(roll_backs) as roll_backs,
    sum(given_up) as given_up_events,
    coalesce(sum(tokens), 0) as given_up_tokens,
    sum(superseded) as superseded_events,
    sum(conflicts) as conflicting_events,
    sum(held_back) as held_back_events
from trajectories
left join left_behind using (tenant, trajectory_id)
where kind <> 'judgement'
    and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
    and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
group by started_on
order by started_on
