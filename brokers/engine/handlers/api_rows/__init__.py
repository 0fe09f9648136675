"""Rows of the API table, one module for each family of calls."""
