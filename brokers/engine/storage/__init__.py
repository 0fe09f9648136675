"""Partition logs on disk, byte-compatible with Kafka's.

This package handles files and offsets and is independent of leadership, clients and the event loop. An `OSError` of the
files of a log becomes `files.StorageFailed(directory)` in `files.py`: all partitions of that root go offline.
"""
