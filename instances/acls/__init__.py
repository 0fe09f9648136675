"""Access control lists of an instance: interfaces to the data plane, descriptions of rules, queries."""
