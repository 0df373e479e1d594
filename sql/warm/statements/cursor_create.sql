-- cursor_create: a cursor for a journal that has none.
-- grain: one row
-- inputs: journal_cursors
-- owner: ingest
insert into journal_cursors (writer, next_lsn) values (%(writer)s, 0) on conflict do nothing
