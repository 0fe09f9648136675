"""Operators' long-running work on a cluster: membership, rolling restarts, and the job runner that continues them."""
