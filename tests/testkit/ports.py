"""Ports for programs that a test starts later: no two tests get the same one, although nobody listens yet."""

from __future__ import annotations

from config.embedded.process import free_port
from tests.testkit.sharing import worker

_given: set[int] = set()


def unused_port() -> int:
    """Returns a free port. The kernel picks at random among the free ones, so concurrent picks may be equal. It hands
    out odd numbers as long as there are any: these are distributed among the processes.
    """
    number, count = worker()
    while True:
        port = free_port()
        if port not in _given and port // 2 % count == number:
            _given.add(port)
            return port
