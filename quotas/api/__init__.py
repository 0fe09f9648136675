"""REST API of client quotas."""
