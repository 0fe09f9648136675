"""Alert rules: notifications when a figure of an instance or of a cluster stays too high."""
