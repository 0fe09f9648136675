"""A run of the flow master simulation: real shares and ledger, and a network with losses and delays.

Promises: once all live brokers see the same layout, the sum of the shares in force is at most the limit; a broker that
leads partitions is never starved; without faults, a single busy broker gets nearly everything.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, NamedTuple

from tests.testkit.flow import Answer, Node, Report, World

BROKERS: Final = 5
LIMIT_BPS: Final = 10_000_019
DEMANDS_BPS: Final = (0, 0, 1, 100_000, 2_000_000, 9_000_000, 400_000_000)
REPORT_TIMEOUT_MS: Final = 2_000
DELAY_MS: Final = (1, 5, 20, 300, 1_500, 2_500)
LATE_PERCENT: Final = 10
LOST_PERCENT: Final = 8
UNDISTURBED_ROUNDS: Final = 10
HOT_PERCENT: Final = 85


class InFlight(NamedTuple):
    arrives_ms: int
    message: Report | Answer


class FlowRun:
    """A run; implements `tests.simulation.__main__.Run`."""

    def __init__(self, seed: int, _home: Path) -> None:
        self.dice = random.Random(seed)
        self.history: list[str] = []
        policy = self.dice.choice(("adaptive", "adaptive", "normalised"))
        self.world = World(LIMIT_BPS, self._leaders(), policy)
        self.network: list[InFlight] = []
        # Time of each broker's open request.
        self.report_sent_ms: dict[int, int] = {}

    def _leaders(self) -> dict[int, int]:
        return {id: self.dice.choice((0, 1, 1, 2, 5)) for id in range(1, BROKERS + 1)} | {1: 1}

    def step(self) -> None:
        world, dice = self.world, self.dice
        action = dice.choices(
            ("time", "report", "demand", "image", "master", "layout", "die"), (40, 40, 8, 8, 1, 2, 1)
        )[0]
        node = dice.choice([candidate for candidate in world.nodes.values() if candidate.is_alive])
        self.history.append(f"{world.now_ms} ms: {action} {node.id}")
        match action:
            case "time":
                self._pass_time(dice.choice((1, 10, 50, 200, 500, 1_000)))
            case "report":
                self._report(node)
            case "demand":
                node.wanted_bps = dice.choice(DEMANDS_BPS)
            case "image":
                self._show_image(node)
            case "master":
                world.new_master(at_once=False)
                world.seen_by_master = world.layout
            case "layout":
                world.lay_out(self._leaders(), at_once=dice.random() < 0.5)
            case "die" if sum(candidate.is_alive for candidate in world.nodes.values()) > 2 and node.id != 1:
                node.is_alive = False
                world.lay_out(dict(world.layout.leaders), at_once=dice.random() < 0.5)
        self.check()

    def _pass_time(self, ms: int) -> None:
        """Lets time pass and delivers the messages in order."""
        ends_ms = self.world.now_ms + ms
        while self.network:
            first = min(self.network, key=lambda in_flight: in_flight.arrives_ms)
            if first.arrives_ms > ends_ms:
                break
            self.network.remove(first)
            self.world.now_ms = max(self.world.now_ms, first.arrives_ms)
            self.world.expire()
            self._deliver(first.message)
            self.check()
        self.world.now_ms = ends_ms
        self.world.expire()

    def _send(self, message: Report | Answer) -> None:
        if self.dice.randrange(100) >= LOST_PERCENT:
            late = self.dice.randrange(100) < LATE_PERCENT
            delay_ms = self.dice.choice(DELAY_MS if late else DELAY_MS[:3])
            self.network.append(InFlight(self.world.now_ms + delay_ms, message))

    def _deliver(self, message: Report | Answer) -> None:
        if isinstance(message, Report):
            answer = self.world.answer(message)
            if answer is not None:
                self._send(answer)
            return
        node = self.world.nodes[message.report.broker_id]
        sent_ms = self.report_sent_ms.get(node.id)
        if node.is_alive and sent_ms is not None and self.world.now_ms - sent_ms < REPORT_TIMEOUT_MS:
            node.apply(message, self.world.now_ms)
            if message.report.sequence == node.sequence:
                del self.report_sent_ms[node.id]

    def _report(self, node: Node) -> None:
        now_ms = self.world.now_ms
        if now_ms - self.report_sent_ms.get(node.id, -REPORT_TIMEOUT_MS) < REPORT_TIMEOUT_MS:
            return
        is_due = node.measure(now_ms) or node.flow.has_unreported_change or node.flow.is_waiting
        self.report_sent_ms[node.id] = now_ms
        self._send(node.report(now_ms, is_due=is_due))

    def _show_image(self, node: Node) -> None:
        """Gives a broker the current image, and sometimes the flow master as well."""
        if self.dice.random() < 0.5:
            self.world.seen_by_master = self.world.layout
        self.world.see(node)

    def check(self) -> None:
        world = self.world
        live = [node for node in world.nodes.values() if node.is_alive]
        if all(node.layout == world.layout for node in live):
            assert world.sum_bps <= world.limit_bps, f"shares {world.shares} of {world.limit_bps}"
        starved = [node.id for node in live if node.leads and node.in_force_bps <= 0]
        assert not starved, f"brokers {starved} lead partitions and may admit nothing"

    def finish(self) -> None:
        """Ends all faults and makes one broker busy, which must get nearly everything."""
        world = self.world
        self._pass_time(max(DELAY_MS) + REPORT_TIMEOUT_MS)
        self.network.clear()
        world.seen_by_master = world.layout
        for node in world.nodes.values():
            world.see(node)
            node.wanted_bps = 0
        if len(world.layout.leaders) < 2 or world.policy != "adaptive":
            return
        hot = world.nodes[min(world.layout.leaders)]
        hot.wanted_bps = 100 * LIMIT_BPS
        for _ in range(UNDISTURBED_ROUNDS):
            world.round()
            self.check()
        share_bps = hot.in_force_bps
        assert share_bps * 100 >= LIMIT_BPS * HOT_PERCENT, f"the hot broker has {share_bps} of {LIMIT_BPS}"

    def close(self) -> None:
        """Does nothing: the run has no resources."""
