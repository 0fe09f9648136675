"""Coordinators: consumer groups with their offsets, and transactions. One runtime carries both (decision 70).

`result` is what a decision is, `ports` what the world owes them, `shard` and `runtime` keep the order of things.
"""
