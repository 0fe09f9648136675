"""Webhooks: events about a tenant's money, sent to an address of the tenant."""
