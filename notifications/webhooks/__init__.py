"""Webhooks: events about a tenant's alerts and bills, sent by HTTP to an address of the tenant."""
