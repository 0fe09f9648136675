"""Limits of connections: their number by instance, by address and of the broker (QUO-50), the rate of new ones
(QUO-51), and the rate of each address of an instance's clients (QUO-52). Pure.

All addresses of an IPv6 network of 64 bits count as one (`network_of`), because a single client may use any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.connections import CREATIONS_PER_TENANT_PART
from brokers.engine.network.entry_queue import network_of
from quotas import throttle
from quotas.pacing import Pace
from quotas.rates import SAMPLE_COUNT, SAMPLE_WIDTH_MS, Rate

# Connections of one second may arrive at once, since disconnected clients reconnect together.
CREATION_BURST_MS: Final = 1_000
# Maximum pause after an accepted connection, however far the rate is exceeded.
PACED_MS_MAX: Final = 1_000

# Causes of refused connections.
INSTANCE: Final = "instance"
ADDRESS: Final = "address"
BROKER: Final = "broker"
ROUTE: Final = "route"
ALLOW_LIST: Final = "allow_list"
ADDRESS_RATE: Final = "address_rate"
REFUSALS: Final = (INSTANCE, ADDRESS, BROKER, ROUTE, ALLOW_LIST, ADDRESS_RATE)
# Causes of refusals that are not charged to the instance's rate of new connections, only to its time of the event loop.
UNPACED: Final = frozenset({ALLOW_LIST, ADDRESS_RATE})
# Addresses of one instance with a counter of their own; all others share one.
ADDRESSES_MAX: Final = 1_000
# Time since the last connection after which an address's counter is empty.
COUNTER_EXPIRY_MS: Final = (SAMPLE_COUNT + 1) * SAMPLE_WIDTH_MS
# Maximum number of expired counters that are removed when an address gets a counter.
EXPIRED_PER_CALL_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections. `sweep_ms` is the interval of `Listeners.sweep`; idle time is counted in sweeps. With
    `delays_responses`, throttled responses are held back until their delay is over.
    """

    connections_max: int
    connections_per_listener_max: int
    idle_ms_max: int
    connections_per_address_max: int
    creations_per_s_max: int
    creations_per_listener_per_s_max: int
    sweep_ms: int = 10_000
    delays_responses: bool = False

    @property
    def creations_per_tenant_per_s_max(self) -> int:
        """Limit of all instances of a tenant together, at least the limit of one instance."""
        tenant_part = round(self.creations_per_s_max * CREATIONS_PER_TENANT_PART)
        return max(self.creations_per_listener_per_s_max, tenant_part)


class Addresses:
    """Numbers of connections of one instance by client address, or network of an IPv6 client."""

    __slots__ = ("_count_by_network",)

    def __init__(self) -> None:
        self._count_by_network: dict[str, int] = {}

    def count(self, address: str) -> int:
        return self._count_by_network.get(network_of(address), 0)

    def add(self, address: str) -> None:
        network = network_of(address)
        self._count_by_network[network] = self._count_by_network.get(network, 0) + 1

    def remove(self, address: str) -> None:
        network = network_of(address)
        remaining = self._count_by_network[network] - 1
        if remaining:
            self._count_by_network[network] = remaining
        else:
            del self._count_by_network[network]


class CreationPace:
    """Rate limit of new connections, of one instance, one tenant or the broker."""

    __slots__ = ("_pace", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._pace = Pace(CREATION_BURST_MS)
        self._per_s = per_s

    def charge(self, now_ms: int) -> int:
        """Counts a connection. Returns the time in ms for which no other is accepted."""
        return min(self._pace.charge(1, self._per_s, now_ms), PACED_MS_MAX)


class AddressLimit(NamedTuple):
    """Limit of new connections per second. `is_own` is True if it was set for this very address, which then has a
    counter apart from its network.
    """

    per_s: float
    is_own: bool


class AddressRates:
    """Rates of new connections of one instance by client address or IPv6 network, the most recently used last."""

    __slots__ = ("_counters", "_shared_rate")

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Rate, int]] = {}
        self._shared_rate = Rate()

    def __len__(self) -> int:
        return len(self._counters)

    def charge(self, address: str, limit: AddressLimit, now_ms: int) -> int:
        """Counts a connection from the address and returns 0. If the address exceeds its limit, the connection is not
        counted, and the time in ms is returned after which it is to be closed.
        """
        rate = self._find_rate(address if limit.is_own else network_of(address), now_ms)
        delay_ms = throttle.charge(rate, 1, limit.per_s, now_ms)
        if not delay_ms:
            return 0
        rate.record(-1, now_ms)
        return min(delay_ms, SAMPLE_WIDTH_MS)

    def _find_rate(self, address: str, now_ms: int) -> Rate:
        counter = self._counters.pop(address, None)
        if counter is None:
            self._remove_expired(now_ms)
            if len(self._counters) >= ADDRESSES_MAX:
                return self._shared_rate
        rate = Rate() if counter is None else counter[0]
        self._counters[address] = rate, now_ms
        return rate

    def _remove_expired(self, now_ms: int) -> None:
        for _ in range(min(EXPIRED_PER_CALL_MAX, len(self._counters))):
            address = next(iter(self._counters))
            if now_ms - self._counters[address][1] < COUNTER_EXPIRY_MS:
                return
            del self._counters[address]
