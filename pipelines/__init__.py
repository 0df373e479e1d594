"""Landing becomes Delta tables; content store, maintenance, curation, queries."""

from __future__ import annotations

from .connect import connect

__all__ = ["connect"]
