"""Dunning of overdue invoices: reminders, then a suspension that ends when nothing is overdue.

`decide` is pure, `services` writes.
"""
