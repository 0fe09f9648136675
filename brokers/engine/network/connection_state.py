"""States of a connection: reading, busy for one or more reasons, closed.

A connection reads frames while it is not busy. Each reason is set by one event and cleared by another, and several may
hold at once; when the last one is cleared, frames kept from earlier reads are processed, then the socket is read.

    reason            set when                                      cleared when
    PROCESSING        a frame is handed to the session              it is answered, deferred, or needs no answer
    WRITING           the socket does not take a whole response     the backlog is written
    MUTED             a response comes with a delay                 the delay is over
    NO_BUFFER         there is no memory for a large frame          other connections gave memory back
    TOO_MANY_PENDING  too many deferred responses wait              few are left
    QUEUED            the instance used its share of the loop       its turn comes

A busy connection watches its socket only for the peer's close, so that a waiting fetch of a dead client ends. `close`
ends every state; `ClosedSession` then replaces the session.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Busy(IntFlag):
    """Reasons for which a connection does not read."""

    PROCESSING = 1
    WRITING = 2
    MUTED = 4
    NO_BUFFER = 8
    TOO_MANY_PENDING = 16
    QUEUED = 32


# The broker, or a throttle delay, keeps the client waiting: such a client is not slow.
WAITING_FOR_US: Final = Busy.PROCESSING | Busy.MUTED | Busy.NO_BUFFER | Busy.QUEUED
