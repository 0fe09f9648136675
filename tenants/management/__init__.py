"""Commands of the tenants app."""
