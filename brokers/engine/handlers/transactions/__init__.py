"""Transactions, their markers, and producer ids."""
