"""Flow master: the broker that distributes the bandwidth of instances and client quotas among all brokers (CKA-21).

Any broker may be elected. `election` has the role, `ledger` computes the shares.
"""
