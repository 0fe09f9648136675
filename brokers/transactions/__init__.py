"""Transactions of tenants that need an operator."""
