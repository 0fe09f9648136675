"""How long metered minutes are kept, and the partitions that they lie in (decision 122)."""
