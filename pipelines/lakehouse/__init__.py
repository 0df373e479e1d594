"""What a lake is made of: places, data files, content store, Delta logs, snapshots, and the commit protocol."""
