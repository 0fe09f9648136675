"""Embedded ZooKeeper, PostgreSQL and Redis from Python packages, for machines with nothing but Python.

Each service listens on loopback or a unix socket, stores its data in the state directory, and ends with its parent.
"""
