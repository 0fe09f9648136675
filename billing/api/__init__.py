"""REST API of billing."""
