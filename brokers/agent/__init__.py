"""Agent of a host: starts, monitors, restarts and stops the host's broker processes."""
