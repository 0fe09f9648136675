"""Cluster metadata of this broker, and the only place that changes it.

`image` is the immutable image, `current` has the latest one, `watcher` builds it, `store` writes, `tree` is the
interface to ZooKeeper and `zookeeper` its only implementation.
"""
