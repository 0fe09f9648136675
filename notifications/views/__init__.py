"""Console pages of alert rules and webhooks."""
