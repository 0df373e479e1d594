"""What other processes tell a trajectory, and the one event that each item becomes."""
