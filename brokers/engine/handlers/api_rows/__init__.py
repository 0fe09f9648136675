"""Rows of the API table, a module for each family of calls."""
