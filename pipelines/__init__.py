"""Landing becomes Delta tables; content store, maintenance, curation, queries."""
