"""Hanging transactions of tenants that need an operator."""
