"""What follows when an invoice is not paid in time: reminders, then a suspension, which ends when nothing is overdue.

`decide` is pure. `services` writes.
"""
