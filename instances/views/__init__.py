"""Console pages about instances: the list, the overview, topics, operations, settings."""
