"""Ledger of a tenant: append-only entries per currency, whose sum is the amount that the tenant owes.

`decide` is pure, `posting` writes single entries, `services` keeps invoices and the credit balance consistent with
them, and `selectors` reads.
"""
