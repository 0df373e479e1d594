"""Landed segments become rows of every table: plan, stages, and the launcher's part of a run."""
