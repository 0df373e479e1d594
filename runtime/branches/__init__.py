"""Going on from a past turn with one thing changed, looking at one, and where two trajectories part."""
