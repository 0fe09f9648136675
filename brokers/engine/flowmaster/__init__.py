"""The flow master: the one broker of a cluster that shares out what instances bought and client quotas allow (CKA-21).

Any broker may be elected. `election` holds the role, `ledger` decides the shares.
"""
