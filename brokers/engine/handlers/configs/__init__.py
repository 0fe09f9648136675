"""Calls about the settings of topics and brokers, and about client quotas."""
