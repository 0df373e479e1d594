"""Derived tables, each computed from the canonical events of the trajectories that a run touches."""
