"""Deleted things of an instance that can be restored for some days."""
