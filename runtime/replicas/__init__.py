"""A second place that holds frames and blobs before an effect leaves the host."""
