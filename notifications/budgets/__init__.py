"""Alerts of budgets: notifications when the costs of a month reach a part of an amount."""
