"""Faults of the network between hosts: one host is cut off or throttled to a few megabits/s while producers run.

Each broker runs on a host of its own, a network namespace, and is the only one of its zone (`--hosts namespaces`).
"""

from __future__ import annotations

import random
from typing import Final

from tests.chaos.faults import PrintLine, sleep
from tests.testkit.engine import EngineHost
from tests.testkit.host_network import HostNetwork, NetworkHost

VERBS: Final = ("cut", "throttle")
ZONES: Final = ("east", "middle", "west")
# Bounds of the time without network; the shortest exceeds a broker's session timeout in ZooKeeper (6 s).
CUT_S: Final = (10.0, 60.0)
THROTTLED_S: Final = (10.0, 30.0)
THROTTLED_BYTES_PER_S: Final = 1_000_000


class NetworkFaults:
    """Faults of the hosts in a network, one at a time."""

    def __init__(self, network: HostNetwork, random_: random.Random, print_line: PrintLine) -> None:
        self._network, self._random, self._print_line = network, random_, print_line
        self.count = 0

    def cut(self, bounds_s: tuple[float, float] = CUT_S) -> None:
        host, seconds = self._choose(bounds_s)
        self._print_line(f"{host.name}: cut off {seconds:.1f} s")
        self._network.pull_out(host)
        try:
            sleep(seconds)
        finally:
            self._network.plug_in(host)

    def throttle(self, bounds_s: tuple[float, float] = THROTTLED_S) -> None:
        host, seconds = self._choose(bounds_s)
        self._print_line(f"{host.name}: {THROTTLED_BYTES_PER_S} bytes/s in each direction for {seconds:.1f} s")
        self._network.throttle(host, THROTTLED_BYTES_PER_S)
        try:
            sleep(seconds)
        finally:
            self._network.release(host)

    def _choose(self, bounds_s: tuple[float, float]) -> tuple[NetworkHost, float]:
        self.count += 1
        return self._random.choice(self._network.hosts), self._random.uniform(*bounds_s)


def engine_hosts(network: HostNetwork) -> list[EngineHost]:
    """Returns the hosts of the network as hosts of brokers, in the order of the brokers' ids."""
    return [EngineHost(host.address, host.command_prefix) for host in network.hosts]
