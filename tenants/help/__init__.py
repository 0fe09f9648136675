"""Documentation of `docs/` as pages of the console."""
