"""Budgets: who wants to hear of it when a month costs so much."""
