"""The documentation in `docs/`, as pages of the console."""
