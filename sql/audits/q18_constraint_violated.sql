-- Q18: constraint violated after acceptance
-- proves: no action that an accepted constraint forbids was dispatched while the constraint was in force
-- clauses: EU AI Act 12(1)-(2), 26; ISO 42001 A.6.2.8; SOC 2 CC6.1
-- severity: high
-- grain: one row per ToolIntent and constraint
-- applies: live
-- needs: -
-- inputs: standing, intents, tool_calls
-- owner: pipelines
-- A predicate is a glob over the tool's name and a glob for each argument (dotted path, absent = empty text). A value
-- that moved to a blob, or arguments that are not recorded, count as matching (fail closed). Verdict ask: the
-- dispatch must name an approval (Q10 checks it). Intent state that a roll-back gave up is out of force from there on.
with accepted as (
    select
        intent.tenant,
        intent.trajectory_id,
        intent.started_on,
        intent.sequence_number,
        intent.action_id,
        intent.tool,
        intent.approval,
        intent.arguments,
        rule.sequence_number as accepted_seq,
        rule.subject,
        rule.predicate
    from intents as intent
    inner join standing as rule
        on rule.tenant = intent.tenant
            and rule.trajectory_id = intent.trajectory_id
            and rule.event_type = 'ConstraintAccepted'
            and rule.predicate is not null
            and rule.sequence_number < intent.sequence_number
            and coalesce(intent.sequence_number < rule.void_at, true)
    where in_scope(intent.tenant, intent.started_on)
        and coalesce(intent.tool glob coalesce(rule.predicate ->> '$.tool', '*'), true)
),
in_force as (
    select accepted.*
    from accepted
    anti join standing as withdrawal
        on withdrawal.tenant = accepted.tenant
            and withdrawal.trajectory_id = accepted.trajectory_id
            and withdrawal.event_type = 'ConstraintWithdrawn'
            and withdrawal.subject = accepted.subject
            and withdrawal.sequence_number > accepted.accepted_seq
            and withdrawal.sequence_number < accepted.sequence_number
            and coalesce(accepted.sequence_number < withdrawal.void_at, true)
),
patterns as (
    select
        in_force.tenant,
        in_force.trajectory_id,
        in_force.sequence_number,
        in_force.accepted_seq,
        pattern.value ->> '$' as pattern,
        '/' || replace(replace(replace(pattern.key, '~', '~0'), '/', '~1'), '.', '/') as place,
        coalesce(
            in_force.arguments,
            case when json_valid(recorded.arguments) then cast(recorded.arguments as json) end
        ) as arguments
    from in_force
    left join tool_calls as recorded
        on recorded.tenant = in_force.tenant
            and recorded.trajectory_id = in_force.trajectory_id
            and recorded.action_id = in_force.action_id
            and in_scope(recorded.tenant, recorded.started_on),
    json_each(json_extract(in_force.predicate, '$.arguments')) as pattern
),
missed as (
    select distinct tenant, trajectory_id, sequence_number, accepted_seq
    from patterns
    where arguments is not null
        and json_type(arguments, place || '/$blob') is null
        and json_type(arguments, '/$blob') is null
        and not (
            case coalesce(json_type(arguments, place), '')
                when 'NULL' then 'None'
                else coalesce(json_extract_string(arguments, place), '')
            end glob pattern
        )
)
select
    in_force.tenant,
    in_force.trajectory_id,
    in_force.sequence_number,
    in_force.action_id,
    in_force.subject as object,
    [in_force.accepted_seq] as related,
    coalesce(in_force.tool, 'an unknown tool') || ' was dispatched against a constraint in force' as detail
from in_force
anti join missed
    on missed.tenant = in_force.tenant
        and missed.trajectory_id = in_force.trajectory_id
        and missed.sequence_number = in_force.sequence_number
        and missed.accepted_seq = in_force.accepted_seq
where in_scope(in_force.tenant, in_force.started_on)
    and not (coalesce(in_force.predicate ->> '$.verdict', 'deny') = 'ask' and in_force.approval is not null)
