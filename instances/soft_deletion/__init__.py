"""Deleted topics and users of an instance, which can be restored for some days."""
