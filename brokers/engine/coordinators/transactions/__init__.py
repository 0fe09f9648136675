"""The transaction coordinator: which producer may write under a transactional id, and how its transactions end.

`machine` is one shard. `metadata` is what a record holds, `states` which state may follow which.
"""
