"""Calls of group members, and requests of handlers to coordinators."""
