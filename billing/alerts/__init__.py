"""Alert rules: who wants to hear of it when a figure of an instance, or of a cluster, stays too high."""
