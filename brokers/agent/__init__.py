"""The agent of a host: starts, watches, restarts and stops the broker processes that are wanted there."""
