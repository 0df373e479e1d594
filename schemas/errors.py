"""Errors of the contract, chosen by what the caller must do next.

SchemaError
├── InvalidId          refuse the input: an id or tenant is outside its grammar
├── InvalidValue       refuse before the effect: a value cannot be recorded exactly
├── InvalidEvent       stop and report: bytes that are no event of this version
└── UnknownVersion     stop: written by a newer trajlake; upgrade to read it
"""

from __future__ import annotations


class SchemaError(ValueError):
    """Root of the contract's errors; its text is one line fit for a user."""


class InvalidId(SchemaError):
    """A tenant, trajectory id, action id or reference is outside its grammar."""


class InvalidValue(SchemaError):
    """A value cannot be recorded exactly; raised before any effect."""


class InvalidEvent(SchemaError):
    """Payload bytes do not decode to the type that their header names."""


class UnknownVersion(SchemaError):
    """The event was written under a schema version newer than this code knows."""
