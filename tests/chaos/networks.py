"""Faults of the network between hosts: one host is cut off, or narrowed to a few megabits, while producers go on.

Each broker runs on a host of its own, a network namespace, and is the only one of its zone (`--hosts namespaces`).
"""

from __future__ import annotations

import random
from typing import Final

from tests.chaos.faults import Say, last
from tests.testkit.engine import EngineHost
from tests.testkit.host_network import HostNetwork, NetworkHost

VERBS: Final = ("cut", "throttle")
ZONES: Final = ("east", "middle", "west")
# The shortest one is beyond a broker's session in ZooKeeper (6 s), the longest one an outage that people notice.
CUT_S: Final = (10.0, 60.0)
THROTTLED_S: Final = (10.0, 30.0)
THROTTLED_BYTES_PER_S: Final = 1_000_000


class NetworkFaults:
    """Faults of the hosts in a network, one at a time."""

    def __init__(self, network: HostNetwork, rolls: random.Random, say: Say) -> None:
        self._network, self._rolls, self._say = network, rolls, say
        self.count = 0

    def cut(self, for_s: tuple[float, float] = CUT_S) -> None:
        host, seconds = self._choose(for_s)
        self._say(f"{host.name}: cut off {seconds:.1f} s")
        self._network.pull_out(host)
        try:
            last(seconds)
        finally:
            self._network.plug_in(host)

    def throttle(self, for_s: tuple[float, float] = THROTTLED_S) -> None:
        host, seconds = self._choose(for_s)
        self._say(f"{host.name}: {THROTTLED_BYTES_PER_S} bytes/s in each direction for {seconds:.1f} s")
        self._network.throttle(host, THROTTLED_BYTES_PER_S)
        try:
            last(seconds)
        finally:
            self._network.release(host)

    def _choose(self, for_s: tuple[float, float]) -> tuple[NetworkHost, float]:
        self.count += 1
        return self._rolls.choice(self._network.hosts), self._rolls.uniform(*for_s)


def engine_hosts(network: HostNetwork) -> list[EngineHost]:
    """Returns the hosts of the network as hosts of brokers, in the order of the brokers' ids."""
    return [EngineHost(host.address, host.before) for host in network.hosts]
