"""Notifications: alert rules and their firings, alerts of budgets, webhooks and mails to be sent."""
