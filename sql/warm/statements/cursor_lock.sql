-- cursor_lock: how far a journal was shipped, held until the transaction ends.
-- grain: one row
-- inputs: journal_cursors
-- owner: ingest
select next_lsn from journal_cursors where writer = %(writer)s for update
