"""Who is who: tenants, members and roles, API tokens, audit, idempotency records, and the console's shell."""
