"""Instances of tenants: instances, operations, topics, users, rules and allow-lists as tenants see them."""
