"""The ledger of a tenant: append-only entries per currency, whose sum is what the tenant owes.

`decide` is pure, `posting` writes single entries, `services` keeps invoices and the credit balance in line with them,
`selectors` reads.
"""
