"""Reconciliation of instances with their rows: places and publishes them, repairs differences, and removes them."""
