"""Reasons to close a connection: idle, silent from the beginning, or too slow in the middle of a message (WIRE-11); and
the checks that find connections to close.

Time is counted in sweeps. While a connection is busy (muted, or waiting for the broker), the time of its incomplete
request is not counted, and the connection is not closed as idle. Idle time begins when the broker has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from brokers.contract.connections import FIRST_REQUEST_MS_MAX
from brokers.engine.network.buffers import RENTED_BYTES_PER_OWNER_MIN, FrameBuffers
from brokers.engine.network.interfaces import OwnedConnection

# A peer that stops in the middle of a request or a response may be silent for this time.
STALLED_MS_MAX: Final = 30_000
# Maximum time in which a request arrives: `REQUEST_MS_MAX`, and a second more for each `REQUEST_BYTES_PER_S_MIN` bytes.
REQUEST_MS_MAX: Final = 30_000
REQUEST_BYTES_PER_S_MIN: Final = 65_536
# Maximum duration if other connections of the instance wait for memory.
CONTENDED_REQUEST_MS_MAX: Final = 10_000
# Number of connections that are checked in one turn of the event loop.
SWEPT_PER_TURN_MAX: Final = 500
# Interval in which incomplete requests are checked while memory is short. A peer's speed is the number of bytes that it
# sent since the last check.
CHECK_MS: Final = 500

IDLE: Final = "idle"
NO_REQUEST: Final = "no_request"
STALLED: Final = "stalled"
SLOW_REQUEST: Final = "slow_request"
EVICTED: Final = "others_need_the_room"
UNREAD_RESPONSES: Final = "unread_answers"
NOT_ALLOWED: Final = "not_allowed"
NO_PROXY_HEADER: Final = "no_proxy_header"
HANDSHAKE: Final = "handshake"
CLOSED_BY_OWNER: Final = "closed_by_owner"
REASONS: Final = (
    IDLE, NO_REQUEST, STALLED, SLOW_REQUEST, EVICTED, UNREAD_RESPONSES, NOT_ALLOWED, NO_PROXY_HEADER, HANDSHAKE,
    CLOSED_BY_OWNER,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConnectionDeadlines:
    """Time limits of a connection. `sweep_ms` is the interval in which connections are checked."""

    idle_ms: int
    sweep_ms: int
    first_request_ms: int = FIRST_REQUEST_MS_MAX
    stalled_ms: int = STALLED_MS_MAX


def request_ms_max(size_bytes: int, is_contended: bool) -> int:
    """Returns the maximum time in ms for a request of this size to arrive."""
    if is_contended:
        return CONTENDED_REQUEST_MS_MAX
    return REQUEST_MS_MAX + size_bytes * 1_000 // REQUEST_BYTES_PER_S_MIN


def count_sweep(connection: OwnedConnection) -> None:
    """Updates the connection's counters for one sweep."""
    # The peer is not idle while it waits for the broker.
    connection.idle_sweeps = 0 if connection.is_waiting else connection.idle_sweeps + 1
    inbound = connection.inbound
    if inbound.frame_count != inbound.swept_frame_count:
        inbound.swept_frame_count = inbound.frame_count
        inbound.frame_sweeps = 0
    elif not inbound.frame_bytes:
        inbound.frame_sweeps = 0
    elif not connection.is_busy:
        inbound.frame_sweeps += 1


def reason_to_close(connection: OwnedConnection, deadlines: ConnectionDeadlines, is_contended: bool) -> str | None:
    """Returns the reason to close the connection, None to keep it. `is_contended`: its instance waits for memory."""
    sweep_ms = deadlines.sweep_ms
    idle_ms = connection.idle_sweeps * sweep_ms
    if idle_ms > deadlines.stalled_ms and connection.is_stalled and not connection.is_waiting:
        return STALLED
    inbound = connection.inbound
    if inbound.frame_sweeps:
        ms_max = request_ms_max(inbound.frame_bytes, is_contended and inbound.large_frame is not None)
        if inbound.frame_sweeps * sweep_ms >= ms_max:
            return SLOW_REQUEST
    if connection.is_busy:
        return None
    if idle_ms > max(deadlines.idle_ms, sweep_ms):
        return IDLE
    if not inbound.frame_count and idle_ms > deadlines.first_request_ms:
        return NO_REQUEST
    return None


class ConnectionHolder(Protocol):
    """The connections of one port."""

    @property
    def connections(self) -> dict[OwnedConnection, None]: ...
    @property
    def group(self) -> object: ...


def sweep(
    ports: Iterable[ConnectionHolder],
    buffers: FrameBuffers,
    deadlines: ConnectionDeadlines,
    close_connection: Callable[[OwnedConnection, str], object],
) -> Iterator[None]:
    """Checks the connections, yields where others may be served, and trims the buffers of an idle broker."""
    is_any_busy = False
    for port in tuple(ports):
        is_contended = buffers.is_contended(port.group)
        connections = tuple(port.connections)
        for start in range(0, len(connections), SWEPT_PER_TURN_MAX):
            for connection in connections[start : start + SWEPT_PER_TURN_MAX]:
                count_sweep(connection)
                is_any_busy = is_any_busy or connection.idle_sweeps <= 1
                reason = reason_to_close(connection, deadlines, is_contended)
                if reason is not None:
                    close_connection(connection, reason)
            yield
    if not is_any_busy:
        buffers.trim()


class Connections(Protocol):
    """All connections of a broker, and a way to close one; implemented by `Listeners`."""

    buffers: FrameBuffers

    def __iter__(self) -> Iterator[ConnectionHolder]: ...
    def close_connection(self, connection: OwnedConnection, reason: str) -> None: ...


class MemoryRelief:
    """Closes the connections that send slowest, while a connection waits for memory of other owners."""

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
        for connection in find_slowest_senders(chain.from_iterable(port.connections for port in self._owner), buffers):
            if missing_bytes <= 0:
                break
            frame = connection.inbound.large_frame
            assert frame is not None, "only incomplete requests are listed"
            missing_bytes -= frame.buffer.counted_bytes
            self._owner.close_connection(connection, SLOW_REQUEST)
        self.watch()


def find_slowest_senders(connections: Iterable[OwnedConnection], buffers: FrameBuffers) -> list[OwnedConnection]:
    """Returns the connections whose request is incomplete, and was at the last check, in the order in which to close
    them: those that sent least since, then those with most bytes. Connections of owners within their minimum, and those
    that wait for the broker, are kept.
    """
    candidates: list[tuple[int, int, int, OwnedConnection]] = []
    for connection in connections:
        frame = connection.inbound.large_frame
        if frame is None:
            continue
        sent_bytes = frame.filled_bytes - frame.checked_bytes
        was_checked = frame.checked_bytes >= 0
        frame.checked_bytes = frame.filled_bytes
        is_large = buffers.owner_rented_bytes(connection.inbound.owner) > RENTED_BYTES_PER_OWNER_MIN
        if was_checked and is_large and not connection.is_waiting:
            candidates.append((sent_bytes, -frame.buffer.counted_bytes, len(candidates), connection))
    return [connection for _, _, _, connection in sorted(candidates)]
