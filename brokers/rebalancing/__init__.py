"""Partition reassignments of a cluster: planning, execution, abort, and removal of a lost broker."""
