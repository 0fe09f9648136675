"""New connections of an instance that arrive faster than it may accept them (QUO-51): they wait, accepted and unread,
and enter at the instance's rate, in turns by address. An address that opens connections as fast as possible delays only
its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from socket import socket
from typing import Final

# Number of 16-bit groups that identify the network of an IPv6 client, which may use all addresses of the network.
IPV6_NETWORK_GROUPS: Final = 4

# Admits or refuses the connection. Returns the time in ms for which no other may enter.
Enter = Callable[[socket], int]


class Queued:
    """Number of waiting connections of all instances."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class EntryQueue:
    """Waiting connections of one instance, counted against the limits as if they had entered. If `exceeded` returns the
    name of a limit after an `add`, `drop` closes the newest connection of the address with most. `is_pacing` is true
    while no connection may enter, because the instance has used up its rate.
    """

    __slots__ = ("_by_address", "_drop", "_exceeded", "_loop", "_of_all", "_timer", "count")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exceeded: Callable[[], str | None],
        drop: Callable[[socket, str, str], object],
        of_all: Queued,
    ) -> None:
        self._loop = loop
        self._exceeded = exceeded
        self._of_all = of_all
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        # In the order of service.
        self._by_address: dict[str, deque[tuple[socket, str, Enter]]] = {}
        self.count = 0

    @property
    def is_pacing(self) -> bool:
        return self._timer is not None

    def pause(self, delay_ms: int) -> None:
        """Admits no connection for this time."""
        if delay_ms > 0 and self._timer is None:
            self._timer = self._loop.call_later(delay_ms / 1_000, self._serve)

    def add(self, accepted: socket, address: str, enter: Enter) -> None:
        self._by_address.setdefault(network_of(address), deque()).append((accepted, address, enter))
        self.count += 1
        self._of_all.count += 1
        limit = self._exceeded()
        if limit is not None:
            network = max(self._by_address, key=self._count_of)
            accepted, address, _ = self._by_address[network].pop()
            if not self._by_address[network]:
                del self._by_address[network]
            self._leave()
            self._drop(accepted, address, limit)

    def _count_of(self, network: str) -> int:
        return len(self._by_address[network])

    def _leave(self) -> None:
        self.count -= 1
        self._of_all.count -= 1

    def _take(self) -> tuple[socket, Enter]:
        network = next(iter(self._by_address))
        waiting = self._by_address.pop(network)
        accepted, _, enter = waiting.popleft()
        if waiting:
            self._by_address[network] = waiting  # after the other addresses
        self._leave()
        return accepted, enter

    def _serve(self) -> None:
        self._timer = None
        while self.count and self._timer is None:
            accepted, enter = self._take()
            self.pause(enter(accepted))

    def end_all(self) -> None:
        """Closes all waiting connections when the instance's last listener is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.count:
            self._take()[0].close()


def network_of(address: str) -> str:
    """Returns the part of an address that counts as one client: the first 64 bits of IPv6."""
    if ":" not in address:
        return address
    address = address.partition("%")[0]  # a link-local address has the interface name appended
    if "." in address:
        return address
    head, _, tail = address.partition("::")
    groups = head.split(":") if head else []
    if len(groups) < IPV6_NETWORK_GROUPS:
        rest = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(rest)) + rest
    return ":".join(groups[:IPV6_NETWORK_GROUPS])
