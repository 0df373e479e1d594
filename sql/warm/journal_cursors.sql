-- journal_cursors: how far each journal was shipped; moves in the transaction that inserts its events.
-- grain: one row per writer
-- inputs: trajlake ship --warm
-- owner: ingest
create table if not exists journal_cursors (
    writer text not null primary key,
    next_lsn bigint not null,
    moved_at timestamptz not null default now()
)
