"""Partition logs on disk, byte-compatible with Kafka's.

This package handles files and offsets and is independent of leadership, clients and the event loop. Every `OSError`
becomes `files.StorageFailed(directory)` in `files.py`; no other module here catches one.
"""
