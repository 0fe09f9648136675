"""Storage limits of instances and of disks (CKA-26). Pure.

`room` has the bytes that one broker may still append for an instance, checked by every produce. `credits` is a broker's
side of the exchange that fills the rooms, `ledger` the controller's side, which allocates the bought storage to
brokers. `room` also stops produces to a disk that is nearly full. `shortening` chooses old segments to delete before
the storage of an instance is used up.
"""
