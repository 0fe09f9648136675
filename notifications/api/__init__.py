"""REST API of alert rules and webhooks."""
