-- repeated_calls: which tools are called again with the same arguments (loops)?
-- grain: one row per tool
-- inputs: tool_calls
-- owner: pipelines
-- range: day on which the trajectory started (UTC)
-- columns:
--   tool          name of the tool
--   calls         actions whose arguments are recorded
--   repeats       actions that an earlier one of the same trajectory equals in tool and arguments
--   repeat_share  0 to 1: repeats / calls
--   most_times    largest number of equal calls in one trajectory
--   trajectories  trajectories with a repeat
-- caveats: reading the same thing again may be right (it changed); arguments are compared by hash where there is
--   one, else as the text the model emitted.
with same as (
    select
        tenant,
        trajectory_id,
        coalesce(tool, 'unknown') as tool,
        coalesce(arguments_hash, arguments) as arguments,
        count(*) as times
    from tool_calls
    where coalesce(arguments_hash, arguments) is not null
        and started_on >= coalesce(getvariable('report_from'), date '0001-01-01')
        and started_on <= coalesce(getvariable('report_to'), date '9999-12-31')
    group by tenant, trajectory_id, coalesce(tool, 'unknown'), coalesce(arguments_hash, arguments)
)
select
    tool,
    sum(times) as calls,
    sum(times - 1) as repeats,
    sum(times - 1) / sum(times) as repeat_share,
    max(times) as most_times,
    count(distinct (tenant, trajectory_id)) filter (where times > 1) as trajectories
from same
group by tool
order by repeats desc, tool
