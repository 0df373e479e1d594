"""What keeps a lake: maintenance, vacuum, retention, holds, erasure."""
