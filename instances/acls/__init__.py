"""Access control lists of an instance: interfaces to the data plane, rules in words, reads."""
