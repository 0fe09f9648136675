"""Metrics of an instance: stored bytes, forecasts, throttling and the Prometheus text."""
