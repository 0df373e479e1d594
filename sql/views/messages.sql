-- messages: the items that contexts are made of, in order.
-- grain: one row per context item (a message, a kept reply, a result or a settlement that was delivered)
-- inputs: events
-- owner: pipelines
-- `wire` is JSON text in the provider's shape (null where the bulk is a blob: see blob_refs), `text` its plain text.
with items as (
    select
        tenant,
        trajectory_id,
        sequence_number,
        turn,
        recorded_at,
        event_type,
        payload,
        started_on,
        model,
        case event_type
            when 'MessageAdded' then payload ->> '$.role'
            when 'ModelReplied' then 'assistant'
            else 'tool'
        end as role,
        case
            when event_type = 'ModelReplied' and payload ->> '$.wire_pointer' is not null
                and json_valid(payload ->> '$.raw')
                then json_extract(payload ->> '$.raw', payload ->> '$.wire_pointer')
            when event_type = 'ToolSettled' then to_json(payload ->> '$.delivered')
            else coalesce(
                json_extract(payload, '$.wire'),
                json_extract(payload, '$.output'),
                case when event_type = 'ModelReplied' and json_valid(payload ->> '$.raw') then payload ->> '$.raw' end
            )
        end as wire
    from events
    where event_type in ('MessageAdded', 'ModelReplied', 'ToolResult', 'ToolSettled')
        and (event_type <> 'ModelReplied' or coalesce(payload ->> '$.status', 'kept') = 'kept')
)
select
    tenant,
    trajectory_id,
    row_number() over (partition by tenant, trajectory_id order by sequence_number) - 1 as item_no,
    sequence_number,
    turn,
    recorded_at,
    role,
    coalesce(payload ->> '$.origin', case when event_type = 'MessageAdded' then 'harness' end) as origin,
    payload ->> '$.action_id' as action_id,
    payload ->> '$.item_hash' as item_hash,
    cast(wire as varchar) as wire,
    case
        when event_type = 'ModelReplied' and json_type(payload, '$.text') = 'VARCHAR' then payload ->> '$.text'
        when json_type(wire) = 'VARCHAR' then wire ->> '$'
        when json_type(wire, '$.content') = 'VARCHAR' then wire ->> '$.content'
        when json_type(wire, '$.content[0].text') = 'VARCHAR' then wire ->> '$.content[0].text'
    end as text,
    started_on,
    model
from items
