"""Errors of the network stores. Each is one line fit for a user; none repeats a secret."""

from __future__ import annotations

from trajlake.runtime.replicas.replica import ReplicaError


class StoreUnreachable(ReplicaError):
    """The store did not answer, or answered with a fault, for as long as we were willing to try.

    What was asked may or may not have happened: ask again, or look.
    """


class StoreRefused(ReplicaError):
    """The store answers, but cannot keep what is promised here, or does not let this role in: trying again is vain."""
