"""The cluster: versions, brokers, log directories, elections, reassignments."""
