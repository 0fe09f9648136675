"""Payments that a provider reports by a signed webhook, or that an operator marks.

`reported` reads and checks what was sent, `decide` is pure, `services` writes.
"""
