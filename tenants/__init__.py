"""Tenants, members and roles, API tokens, audit log, idempotency records, and the frame of the console."""
