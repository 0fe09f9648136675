"""Ports for what a test starts later: no two of this process get the same one, although nobody listens there yet."""

from __future__ import annotations

from config.embedded.process import free_port

_given: set[int] = set()


def unused_port() -> int:
    """The kernel picks at random among those that are free at this moment: of a thousand pairs some are equal."""
    while True:
        port = free_port()
        if port not in _given:
            _given.add(port)
            return port
