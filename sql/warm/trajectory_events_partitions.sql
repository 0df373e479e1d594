-- trajectory_events_0 .. trajectory_events_7: the partitions of trajectory_events, by hash of the trajectory.
-- grain: as trajectory_events
-- inputs: trajectory_events
-- owner: ingest
do $$
begin
    for part in 0..7 loop
        execute format(
            'create table if not exists trajectory_events_%s partition of trajectory_events'
            ' for values with (modulus 8, remainder %s)', part, part
        );
    end loop;
end
$$
