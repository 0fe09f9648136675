"""Webhooks: what happens to a tenant's money, told to an address of the tenant's."""
