"""Retention of metered minutes and the partitions of their table (decision 122)."""
