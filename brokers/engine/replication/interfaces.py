"""What following a leader needs of the world: a connection to it, and to be woken in time. The assembly plugs in
sockets and the loop, a simulation its own network and clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokers.engine.cluster.image import BrokerInfo


class Link(Protocol):
    """One authenticated connection to another broker's internal listener, or the attempt at one."""

    def send(self, frame: bytes) -> None:
        """A whole request frame. Only between `on_up` and `on_down`; a failure is told by `on_down`, later."""

    def trim(self) -> None:
        """Called now and then: memory that was not needed since the last time may go."""

    def close(self) -> None:
        """Ends it; `on_down` is not called any more. Harmless when repeated."""


class LinkOwner(Protocol):
    """Who is told what happens on a link. Never called from inside `Connect` or `Link.send`."""

    def on_up(self) -> None:
        """The peer knows who we are: requests may be sent."""

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """A whole response without its size. The buffer is writable, and valid during this call only."""

    def on_down(self, reason: str) -> None:
        """Refused, lost, or closed by the peer. The link is of no more use."""


class Timer(Protocol):
    def cancel(self) -> None: ...


Connect = Callable[[BrokerInfo, LinkOwner], Link]
# Calls back once after so many milliseconds.
CallLater = Callable[[int, Callable[[], object]], Timer]
