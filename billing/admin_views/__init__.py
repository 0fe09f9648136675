"""Operator pages about money. Users with `billing.view_invoice` may read them; each action has its own permission."""
