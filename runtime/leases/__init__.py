"""Who may act for a trajectory: leases, generations of tokens, and the files that hold them."""
