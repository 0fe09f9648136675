"""Checks all connections of a broker periodically, and closes those that `endings` has a reason for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from brokers.engine.network import endings
from brokers.engine.network.buffers import FrameBuffers
from brokers.engine.network.endings import Deadlines
from brokers.engine.network.interfaces import OwnedConnection

# Number of connections that are checked in one turn of the event loop.
SWEPT_PER_TURN_MAX: Final = 500


class Listener(Protocol):
    """The connections of one port."""

    @property
    def connections(self) -> dict[OwnedConnection, None]: ...

    @property
    def group(self) -> object: ...


def sweep(
    listeners: Iterable[Listener],
    buffers: FrameBuffers,
    deadlines: Deadlines,
    end: Callable[[OwnedConnection, str], object],
) -> Iterator[None]:
    """Checks the connections, and yields where others may be served. Frees unused buffers when the broker is idle."""
    busy = False
    for listener in tuple(listeners):
        is_contended = buffers.is_contended(listener.group)
        connections = tuple(listener.connections)
        for at in range(0, len(connections), SWEPT_PER_TURN_MAX):
            for connection in connections[at : at + SWEPT_PER_TURN_MAX]:
                endings.note_sweep(connection)
                busy = busy or connection.idle_ticks <= 1
                reason = endings.reason_to_close(connection, deadlines, is_contended)
                if reason is not None:
                    end(connection, reason)
            yield
    if not busy:
        buffers.trim()
