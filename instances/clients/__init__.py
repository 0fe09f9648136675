"""Clients that are connected to an instance now."""
