"""What this broker knows of the cluster, and the one place through which it changes that.

`image` is the immutable image, `current` holds the latest one, `watcher` makes it, `store` writes, `tree` is the port
to ZooKeeper and `zookeeper` its only speaker.
"""
