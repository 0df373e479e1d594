-- Q17: resume across an incompatible schema
-- proves: a run was resumed under the version of its checkpoint, or one declared compatible for resuming
-- clauses: SOC 2 CC8.1; EU AI Act 12(1)-(2)
-- severity: high
-- grain: one row per Resumed
-- applies: live
-- needs: -
-- inputs: resumes, versions, compatible_versions
-- owner: pipelines
-- The version resumed from is that of the last checkpoint, of the resume before, or of the start, whichever is last.
select
    resume.tenant,
    resume.trajectory_id,
    resume.sequence_number,
    null::varchar as action_id,
    null::varchar as object,
    case when before.sequence_number is null then []::bigint[] else [before.sequence_number] end as related,
    'resumed under version ' || coalesce(cast(resume.resumed_version as varchar), 'unknown')
    || ' from version ' || coalesce(cast(before.version as varchar), 'unknown') as detail
from resumes as resume
asof left join versions as before
    on before.tenant = resume.tenant
        and before.trajectory_id = resume.trajectory_id
        and before.sequence_number < resume.sequence_number
left join compatible_versions as declared
    on declared.from_version = before.version and declared.to_version = resume.resumed_version
where in_scope(resume.tenant, resume.started_on)
    and before.version is distinct from resume.resumed_version
    and declared.from_version is null
