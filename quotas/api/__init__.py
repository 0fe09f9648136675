"""Client quotas over REST."""
