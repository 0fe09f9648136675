"""What brokers say of themselves: observation, health, the cluster overview, sampled lags."""
