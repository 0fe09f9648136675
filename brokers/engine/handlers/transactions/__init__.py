"""Calls about transactions, their markers, and producer ids."""
