"""Backup and restore of an installation: PostgreSQL, the documents in ZooKeeper, and secrets. No messages.

`backing_up` and `restoring` are the two procedures; the other modules are the parts that they put together.
"""
