-- cursor_read: how far a journal was shipped.
-- grain: one row
-- inputs: journal_cursors
-- owner: ingest
select next_lsn from journal_cursors where writer = %(writer)s
