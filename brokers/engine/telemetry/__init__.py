"""Telemetry of the broker process: log lines, metrics, and HTTP of the admin port."""
