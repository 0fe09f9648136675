"""Partition logs on disk, byte-compatible with Kafka's. Knows files and offsets; knows no leader, no client, no loop.

Every `OSError` becomes `files.StorageFailed(directory)` in `files.py`; nothing else here catches one.
"""
