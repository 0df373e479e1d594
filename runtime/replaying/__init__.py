"""Replay: recorded trajectories run through the real harness again. See runtime/README.md, *Replay*."""
