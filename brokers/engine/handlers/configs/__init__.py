"""Settings of topics and brokers, client quotas."""
