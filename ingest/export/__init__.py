"""Exports: trajectories as other tools' formats, each saying what it cannot hold."""
