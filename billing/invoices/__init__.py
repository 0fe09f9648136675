"""Invoices: what is due so far, what was issued, and the proof of both."""
