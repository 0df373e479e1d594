-- X04: resumed run whose first action left the recorded plan
-- proves: after a resume the recorded plan was followed, or replaced by one that names what it replaces
-- clauses: ISO 42001 A.6.2.8; EU AI Act 12(1)-(2)
-- severity: medium
-- grain: one row per Resumed
-- applies: live
-- needs: -
-- inputs: resumes, intents, standing
-- owner: pipelines
-- The first action is the first that was proposed after the resume. It follows the plan if the plan's text names its
-- tool or step. A plan that moved to a blob names nothing here (fail closed); without a plan nothing is judged.
with firsts as (
    select
        resume.tenant,
        resume.trajectory_id,
        resume.started_on,
        resume.sequence_number as resumed_seq,
        min(intent.sequence_number) as sequence_number,
        arg_min(intent.action_id, intent.sequence_number) as action_id,
        arg_min(coalesce(intent.tool, ''), intent.sequence_number) as tool,
        arg_min(coalesce(intent.step, ''), intent.sequence_number) as step
    from resumes as resume
    inner join intents as intent
        on intent.tenant = resume.tenant
            and intent.trajectory_id = resume.trajectory_id
            and intent.sequence_number > resume.sequence_number
            and coalesce(try_cast(split_part(intent.action_id, '.', 1) as bigint) > resume.sequence_number, true)
    where in_scope(resume.tenant, resume.started_on)
    group by resume.tenant, resume.trajectory_id, resume.started_on, resume.sequence_number
),
plans as (
    select
        firsts.tenant,
        firsts.trajectory_id,
        firsts.resumed_seq,
        max(plan.sequence_number) as plan_seq,
        lower(arg_max(cast(plan.plan as varchar), plan.sequence_number)) as plan_text
    from firsts
    inner join standing as plan
        on plan.tenant = firsts.tenant
            and plan.trajectory_id = firsts.trajectory_id
            and plan.event_type = 'PlanCommitted'
            and plan.sequence_number < firsts.sequence_number
            and coalesce(firsts.sequence_number < plan.void_at, true)
            and (plan.sequence_number < firsts.resumed_seq or plan.replaces is not null)
    group by firsts.tenant, firsts.trajectory_id, firsts.resumed_seq
)
select
    firsts.tenant,
    firsts.trajectory_id,
    firsts.sequence_number,
    firsts.action_id,
    null::varchar as object,
    [firsts.resumed_seq, plans.plan_seq] as related,
    firsts.tool || ' was the first action after the resume, and the plan does not name it' as detail
from firsts
inner join plans
    on plans.tenant = firsts.tenant
        and plans.trajectory_id = firsts.trajectory_id
        and plans.resumed_seq = firsts.resumed_seq
where in_scope(firsts.tenant, firsts.started_on)
    and not coalesce(
        (firsts.tool <> '' and contains(plans.plan_text, lower(firsts.tool)))
        or (firsts.step <> '' and contains(plans.plan_text, lower(firsts.step))),
        false
    )
