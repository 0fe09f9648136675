"""Commands of the brokers app."""
