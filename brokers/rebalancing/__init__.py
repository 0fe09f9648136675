"""Partition reassignments of a cluster: what is planned, carried out, aborted, or lost with a broker."""
