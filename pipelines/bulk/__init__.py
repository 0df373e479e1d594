"""Imports into a lake without a root between: what `ingest` calls by name, and the writing half of it."""
