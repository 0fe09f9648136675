"""Calls about the cluster: versions, brokers, log directories, elections, reassignments."""
