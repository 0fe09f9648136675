"""Agent of a host: starts, monitors, restarts and stops the wanted broker processes."""
