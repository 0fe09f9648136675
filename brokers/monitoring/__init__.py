"""Monitoring of brokers: observation, health, the cluster overview, sampled lags."""
