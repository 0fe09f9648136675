"""REST API of instances, their topics and operations."""
