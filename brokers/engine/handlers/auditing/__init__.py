"""Descriptions of administrative requests for the audit log."""
