"""The replication room: what a follower asks, decides and appends."""
