"""Simulated network: each direction of a connection keeps its order, has random delays, and may be cut by itself.

Data that is sent over a cut direction waits, as with TCP's retransmission. A connection ends when one side closes it or
dies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.cluster.clock import US_PER_MS, Handle, Message, ProcessLoop, World

# Location of a process: a broker id, ZooKeeper or the clients.
Place = int
ZOOKEEPER: Final = 0
CLIENTS: Final = -1

DELAY_US_MIN, DELAY_US_MAX = 100, 2_000
DELAY_US_RANGE: Final = DELAY_US_MAX - DELAY_US_MIN


class Network:
    """The network. `cut` has the cut directions, `slow_ms` the additional delays of slow ones."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self._random = dice.random
        self.cut: set[tuple[Place, Place]] = set()
        self.slow_ms: dict[tuple[Place, Place], int] = {}
        self._directions: list[Direction] = []
        self._on_change: list[Callable[[], object]] = []

    def on_change(self, call: Callable[[], object]) -> None:
        """Adds a callback that is called after each cut or repair."""
        self._on_change.append(call)

    def delay_us(self, source: Place, target: Place) -> int:
        base = DELAY_US_MIN + int(self._random() * DELAY_US_RANGE)
        if self.slow_ms:
            base += self.slow_ms.get((source, target), 0) * US_PER_MS
        return base

    def joins(self, source: Place, target: Place) -> bool:
        return (source, target) not in self.cut and (target, source) not in self.cut

    def sever(self, source: Place, target: Place) -> None:
        self.cut.add((source, target))
        self._on_links_changed()

    def mend(self, source: Place | None = None, target: Place | None = None) -> None:
        """Repairs one direction, or all."""
        if source is None or target is None:
            self.cut.clear()
        else:
            self.cut.discard((source, target))
        self._on_links_changed()

    def _on_links_changed(self) -> None:
        self._directions = [direction for direction in self._directions if not direction.is_closed]
        for direction in self._directions:
            direction.send_waiting()
        for call in self._on_change:
            call()

    def connect(
        self, source: Place, target: Place, loop: ProcessLoop | None, deliver: Callable[[Any], object]
    ) -> Direction:
        direction = Direction(self, source, target, loop, deliver)
        self._directions.append(direction)
        return direction


class Direction:
    """One direction of a connection; `loop` is the receiver's."""

    __slots__ = ("_deliver", "_last_us", "_loop", "_network", "_waiting", "ends", "is_closed")

    def __init__(
        self,
        network: Network,
        source: Place,
        target: Place,
        loop: ProcessLoop | None,
        deliver: Callable[[Any], object],
    ) -> None:
        self._network = network
        self.ends = (source, target)
        self._loop = loop
        self._deliver = deliver
        self._last_us = 0
        self._waiting: list[Any] = []
        self.is_closed = False

    def send(self, message: Any) -> None:
        if self._waiting or (self._network.cut and self.ends in self._network.cut):
            self._waiting.append(message)
        else:
            self._post(message)

    def _post(self, message: Any) -> None:
        network = self._network
        world = network.world
        due_us = world.now_us + network.delay_us(*self.ends)
        if due_us < self._last_us:
            due_us = self._last_us
        self._last_us = due_us
        if self._loop is None:
            world.at(due_us, Handle(None, self._arrive, (message,)))
        else:
            world.at(due_us, Message(self._loop, self._arrive, (message,)))

    def _arrive(self, message: Any) -> None:
        if not self.is_closed:
            self._deliver(message)

    def send_waiting(self) -> None:
        if self._waiting and self.ends not in self._network.cut:
            waiting, self._waiting = self._waiting, []
            for message in waiting:
                self._post(message)

    def close(self) -> None:
        """Drops everything that has not arrived."""
        self.is_closed = True
        self._waiting.clear()
