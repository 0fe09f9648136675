"""Interfaces of replication to its environment: connections to other brokers and timers.

The broker provides sockets and the event loop, a simulation its own network and clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokers.engine.cluster.image import BrokerInfo


class Link(Protocol):
    """An authenticated connection to the internal listener of another broker, or the attempt to establish one."""

    def send(self, frame: bytes) -> None:
        """Sends a whole request frame, between `on_up` and `on_down`; a failure is reported later by `on_down`."""

    def trim(self) -> None:
        """Frees memory that was not needed since the last call; called periodically."""

    def close(self) -> None:
        """Closes the link, after which `on_down` is not called; may be called repeatedly."""


class LinkOwner(Protocol):
    """Receiver of the events of a link, which is never called from inside `Connect` or `Link.send`."""

    def on_up(self) -> None:
        """Called when this broker is authenticated: requests may be sent."""

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """Called with a whole response without its size; the buffer is writable and valid during this call only."""

    def on_down(self, reason: str) -> None:
        """Called when the link was refused, lost, or closed by the peer; it must not be used afterwards."""


class Timer(Protocol):
    def cancel(self) -> None: ...


Connect = Callable[[BrokerInfo, LinkOwner], Link]
# Calls back once after a delay in milliseconds.
CallLater = Callable[[int, Callable[[], object]], Timer]
