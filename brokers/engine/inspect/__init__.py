"""Inspection of log directories without a broker: dump, verify, recover. `python -m brokers.engine.inspect --help`."""
