-- cursor_move: a journal was shipped up to here.
-- grain: one row
-- inputs: journal_cursors
-- owner: ingest
update journal_cursors set next_lsn = %(next_lsn)s, moved_at = now() where writer = %(writer)s
