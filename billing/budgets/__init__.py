"""Budgets: amounts of a month, whose alerts `notifications` sends."""
