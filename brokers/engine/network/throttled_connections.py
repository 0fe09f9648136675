"""Connections that exceeded the rate of their address: open and unread until their delay is over, then closed (QUO-52).

A client that opens one connection after the other waits for each, instead of retrying at once.
"""

from __future__ import annotations

import asyncio
from socket import socket
from typing import Final

# Maximum number of one instance; others are closed at once. Each takes a descriptor here and at its peer.
THROTTLED_PER_INSTANCE_MAX: Final = 100


class ThrottledConnections:
    """Sockets by the name of their group. No listener counts them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held: dict[str, dict[socket, asyncio.TimerHandle]] = {}
        self.count = 0

    def hold(self, group: str, accepted: socket, delay_ms: int) -> None:
        held = self._held.setdefault(group, {})
        if len(held) >= THROTTLED_PER_INSTANCE_MAX:
            accepted.close()
            return
        held[accepted] = self._loop.call_later(delay_ms / 1_000, self._end, group, accepted)
        self.count += 1

    def _end(self, group: str, accepted: socket) -> None:
        held = self._held[group]
        held.pop(accepted).cancel()
        if not held:
            del self._held[group]
        self.count -= 1
        accepted.close()

    def end_one(self) -> None:
        """Closes one early, of the group with most, because its descriptor is needed."""
        group = max(self._held, key=lambda name: len(self._held[name]))
        self._end(group, next(iter(self._held[group])))

    def end_all(self, group: str) -> None:
        for accepted in tuple(self._held.get(group, ())):
            self._end(group, accepted)
