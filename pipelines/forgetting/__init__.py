"""How texts leave tables and other places: decisions, openings, old files. Used by every run that may forget."""
