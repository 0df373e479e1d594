"""Checkpoints of a trajectory's state and of the files it works on, and how often to take them."""
