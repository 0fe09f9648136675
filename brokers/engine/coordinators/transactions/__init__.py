"""Transaction coordinator: decides which producer may use a transactional id, and ends its transactions.

`machine` is the state machine of one shard, `metadata` the contents of a record, `states` the states of a transaction
and their transitions.
"""
