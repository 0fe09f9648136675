"""Chaos tests: brokers are killed, stopped and restarted under load; then every acknowledged record is checked."""
