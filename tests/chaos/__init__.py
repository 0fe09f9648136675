"""Brokers killed, stopped and restarted under load, and what every acknowledgement was worth afterwards."""
