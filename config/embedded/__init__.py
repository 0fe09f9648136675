"""Real ZooKeeper, PostgreSQL and Redis out of Python packages, for a machine that has nothing but Python.

Each service listens on loopback or a unix socket, keeps its data in the state directory, and ends with its parent.
"""
