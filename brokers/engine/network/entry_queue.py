"""New connections of an instance that arrive faster than it may accept them (QUO-51): they wait, accepted and unread,
and enter at the instance's rate, in turns by address. An address that opens connections as fast as possible delays only
its own connections.
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
Admit = Callable[[socket], int]


class QueuedCount:
    """Number of waiting connections of all instances."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class EntryQueue:
    """Waiting connections of one instance, counted against the limits as if they had entered. If `exceeded_limit`
    returns the name of a limit after an `add`, `drop` closes the newest connection of the address with most.
    `is_pacing` is true while no connection may enter, because the instance has used up its rate.
    """

    __slots__ = ("_drop", "_exceeded_limit", "_loop", "_queue_by_network", "_timer", "_total", "count")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exceeded_limit: Callable[[], str | None],
        drop: Callable[[socket, str, str], object],
        total: QueuedCount,
    ) -> None:
        self._loop = loop
        self._exceeded_limit = exceeded_limit
        self._total = total
        self._drop = drop
        self._timer: asyncio.TimerHandle | None = None
        # In the order of service.
        self._queue_by_network: dict[str, deque[tuple[socket, str, Admit]]] = {}
        self.count = 0

    @property
    def is_pacing(self) -> bool:
        return self._timer is not None

    def pause(self, delay_ms: int) -> None:
        """Admits no connection for this time."""
        if delay_ms > 0 and self._timer is None:
            self._timer = self._loop.call_later(delay_ms / 1_000, self._admit_queued)

    def add(self, accepted: socket, address: str, admit: Admit) -> None:
        self._queue_by_network.setdefault(network_of(address), deque()).append((accepted, address, admit))
        self.count += 1
        self._total.count += 1
        limit = self._exceeded_limit()
        if limit is not None:
            network = max(self._queue_by_network, key=lambda network: len(self._queue_by_network[network]))
            accepted, address, _ = self._queue_by_network[network].pop()
            if not self._queue_by_network[network]:
                del self._queue_by_network[network]
            self._uncount()
            self._drop(accepted, address, limit)

    def _uncount(self) -> None:
        self.count -= 1
        self._total.count -= 1

    def _pop(self) -> tuple[socket, Admit]:
        network = next(iter(self._queue_by_network))
        queue = self._queue_by_network.pop(network)
        accepted, _, admit = queue.popleft()
        if queue:
            self._queue_by_network[network] = queue  # after the other addresses
        self._uncount()
        return accepted, admit

    def _admit_queued(self) -> None:
        self._timer = None
        while self.count and self._timer is None:
            accepted, admit = self._pop()
            self.pause(admit(accepted))

    def close_all(self) -> None:
        """Closes all waiting connections when the instance's last listener is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.count:
            self._pop()[0].close()


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
        tail_groups = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(tail_groups)) + tail_groups
    return ":".join(groups[:IPV6_NETWORK_GROUPS])
