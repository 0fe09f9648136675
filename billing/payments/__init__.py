"""Payments that a provider reports by a signed webhook, or that an operator enters.

`reported` parses and verifies reports, `decide` is pure, `services` writes.
"""
