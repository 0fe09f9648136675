"""Closes connections when memory for requests is short: while a connection waits for memory of other owners, the peers
that send slowest are closed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Protocol

from brokers.engine.network import endings
from brokers.engine.network.buffers import RENTED_BYTES_PER_OWNER_MIN, FrameBuffers
from brokers.engine.network.interfaces import OwnedConnection

# Interval in which incomplete requests are checked while memory is short. A peer's speed is what it sent since.
CHECK_MS: Final = 500


class Listener(Protocol):
    connections: dict[OwnedConnection, None]


class Connections(Protocol):
    """All connections of a broker, and a way to close one; implemented by `Listeners`."""

    buffers: FrameBuffers

    def __iter__(self) -> Iterator[Listener]: ...

    def end(self, connection: OwnedConnection, reason: str) -> None: ...


class MemoryRelief:
    """Checks incomplete requests as long as memory is short, and never otherwise."""

    def __init__(self, owner: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Starts the checks when a connection waits for memory."""
        if self._timer is None:
            self._timer = self._loop.call_later(CHECK_MS / 1_000, self._check)

    def _check(self) -> None:
        self._timer = None
        buffers = self._owner.buffers
        if not buffers.is_short:
            return
        missing_bytes = buffers.missing_bytes
        for connection in slowest(chain.from_iterable(listener.connections for listener in self._owner), buffers):
            if missing_bytes <= 0:
                break
            frame = connection.inbound.large
            assert frame is not None, "only incomplete requests are listed"
            missing_bytes -= frame.buffer.counted_bytes
            self._owner.end(connection, endings.SLOW_REQUEST)
        self.watch()


def slowest(connections: Iterable[OwnedConnection], buffers: FrameBuffers) -> list[OwnedConnection]:
    """Returns the connections whose request is incomplete, and was at the last check, in the order in which to close
    them: those that sent least since, then those with most bytes. Connections of owners within their minimum, and those
    that wait for the broker, are kept.
    """
    candidates: list[tuple[int, int, int, OwnedConnection]] = []
    for connection in connections:
        frame = connection.inbound.large
        if frame is None:
            continue
        sent_bytes = frame.filled - frame.checked_bytes
        was_checked = frame.checked_bytes >= 0
        frame.checked_bytes = frame.filled
        is_large = buffers.rented_by(connection.inbound.owner) > RENTED_BYTES_PER_OWNER_MIN
        if was_checked and is_large and not connection.is_waiting:
            candidates.append((sent_bytes, -frame.buffer.counted_bytes, len(candidates), connection))
    return [connection for _, _, _, connection in sorted(candidates)]
