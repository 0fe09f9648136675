"""Coordinators: consumer groups with their offsets, and transactions. One runtime carries both (decision 70).

`outcome` is what a decision is, `ports` what the world owes them, `shard` and `runtime` keep the order of things.
"""
