"""Ports for what a test starts later: no two tests get the same one, although nobody listens there yet."""

from __future__ import annotations

from config.embedded.process import free_port
from tests.testkit.sharing import worker

_given: set[int] = set()


def unused_port() -> int:
    """The kernel picks at random among those that are free at this moment: of a thousand pairs some are equal, in one
    process and in two beside each other. It hands out odd numbers as long as there are any: these are shared out.
    """
    number, count = worker()
    while True:
        port = free_port()
        if port not in _given and port // 2 % count == number:
            _given.add(port)
            return port
