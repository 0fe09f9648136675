"""Calls about the committed offsets of groups."""
