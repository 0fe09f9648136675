"""Reasons to close a connection: idle, silent from the beginning, or too slow in the middle of a message (WIRE-11).

Time is counted in sweeps. A sweep in which the client could do nothing (muted, or waiting for the broker) is not
counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokers.contract.connections import FIRST_REQUEST_MS_MAX
from brokers.engine.network.interfaces import OwnedConnection

# A peer that stops in the middle of a request or a response may be silent for this time.
STALLED_MS_MAX: Final = 30_000
# Maximum duration of a request's arrival: this time, and a second more for this number of its bytes.
REQUEST_MS_MAX: Final = 30_000
REQUEST_BYTES_PER_S_MIN: Final = 65_536
# Maximum duration if other connections of the instance wait for memory.
CONTENDED_REQUEST_MS_MAX: Final = 10_000

IDLE: Final = "idle"
NO_REQUEST: Final = "no_request"
STALLED: Final = "stalled"
SLOW_REQUEST: Final = "slow_request"
NEEDED: Final = "others_need_the_room"
UNREAD_ANSWERS: Final = "unread_answers"
NOT_ALLOWED: Final = "not_allowed"
NO_PROXY_HEADER: Final = "no_proxy_header"
HANDSHAKE: Final = "handshake"
CLOSED_BY_OWNER: Final = "closed_by_owner"
REASONS: Final = (
    IDLE, NO_REQUEST, STALLED, SLOW_REQUEST, NEEDED, UNREAD_ANSWERS, NOT_ALLOWED, NO_PROXY_HEADER, HANDSHAKE,
    CLOSED_BY_OWNER,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deadlines:
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


def note_sweep(connection: OwnedConnection) -> None:
    """Updates the connection's counters for one sweep."""
    connection.idle_ticks += 1
    inbound = connection.inbound
    if inbound.frames != inbound.frames_swept:
        inbound.frames_swept = inbound.frames
        inbound.frame_ticks = 0
    elif not inbound.frame_bytes:
        inbound.frame_ticks = 0
    elif not connection.is_busy:
        inbound.frame_ticks += 1


def reason_to_close(connection: OwnedConnection, deadlines: Deadlines, is_contended: bool) -> str | None:
    """Returns the reason to close the connection, None to keep it. `is_contended`: its instance waits for memory."""
    sweep_ms = deadlines.sweep_ms
    idle_ms = connection.idle_ticks * sweep_ms
    if idle_ms > deadlines.stalled_ms and connection.is_stalled and not connection.is_waiting:
        return STALLED
    inbound = connection.inbound
    if inbound.frame_ticks:
        ms_max = request_ms_max(inbound.frame_bytes, is_contended and inbound.large is not None)
        if inbound.frame_ticks * sweep_ms >= ms_max:
            return SLOW_REQUEST
    if connection.is_busy:
        return None
    if idle_ms > max(deadlines.idle_ms, sweep_ms):
        return IDLE
    if not inbound.frames and idle_ms > deadlines.first_request_ms:
        return NO_REQUEST
    return None
