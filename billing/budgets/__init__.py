"""Budgets: notifications when the costs of a month reach an amount."""
