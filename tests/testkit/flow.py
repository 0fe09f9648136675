"""Brokers with real shares under a real allocator of the flow master, and the messages between them, which tests
deliver, delay or lose.

    world = World(20_000_000, {1: 1, 2: 1, 3: 1})
    world.nodes[2].wanted_bps = 100_000_000
    world.round()                               # an interval in which everything arrives
    world.shares, world.sum_bps

Each broker sees a layout, and the current flow master, after `see`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.engine.flowmaster.ledger import FlowKey, FlowLedger, ShareAnswer
from brokers.engine.throttling.flow_share import INTERVAL_MS, FlowShare, ReportedFlow
from brokers.engine.throttling.layout import Layout

KEY: Final[FlowKey] = ("ins-aaaaaaaa", 0, "")
FOLLOW_UPS: Final = 4


@dataclass(slots=True)
class Report:
    """A broker's report to the flow master of an epoch."""

    broker_id: int
    epoch: int
    sequence: int
    lines: list[ReportedFlow]
    asked_ms: int


@dataclass(slots=True)
class Answer:
    report: Report
    shares: list[ShareAnswer]


@dataclass(slots=True)
class Node:
    """A broker: its share of one limit, and its clients' demand."""

    id: int
    flow: FlowShare = field(default_factory=lambda: FlowShare(None, 0))
    layout: Layout = field(default_factory=lambda: Layout.from_leaders({}))
    master_epoch: int = 1
    wanted_bps: int = 0
    sequence: int = 0
    is_alive: bool = True
    measured_ms: int = 0

    def measure(self, now_ms: int) -> bool:
        """Measures in the way of `FlowShare.measure`, with clients that use their demand or their share."""
        flow, is_due = self.flow, self.flow.measure(now_ms)
        if flow.admitted_bps >= 0 and now_ms - self.measured_ms >= INTERVAL_MS:
            self.measured_ms = now_ms
            is_due = is_due or self.wanted_bps > 0
            flow.admitted_bps, flow.wanted_bps = min(self.wanted_bps, int(flow.share_bps)), self.wanted_bps
        return is_due

    def report(self, now_ms: int, *, is_due: bool) -> Report:
        self.sequence += 1
        lines = [self.flow.report()] if is_due and self.leads else []
        return Report(self.id, self.master_epoch, self.sequence, lines, now_ms)

    def apply(self, answer: Answer, now_ms: int) -> None:
        """Applies the answer to its last report: it waits for one answer at a time."""
        report = answer.report
        if report.sequence == self.sequence and report.epoch == self.master_epoch:
            for share in answer.shares:
                self.flow.apply_answer(share.basis, share.share_bps, share.is_waiting, report.asked_ms, now_ms)

    @property
    def leads(self) -> bool:
        return self.id in self.layout.leaders

    @property
    def in_force_bps(self) -> int:
        return int(self.flow.share_bps) if self.is_alive and self.leads else 0


class World:
    """One limit of `limit_bps` on brokers, with the number of partitions that each leads."""

    def __init__(self, limit_bps: int, leaders: dict[int, int], policy: str = "adaptive") -> None:
        self.limit_bps = limit_bps
        self.policy = policy
        self.now_ms = 0
        self.epoch = 1
        self.ledger = FlowLedger(0)
        self.nodes = {id: Node(id) for id in leaders}
        # Number of changes of the set of brokers that lead partitions.
        self.moves = 0
        # The current layout, and the one that the flow master has read.
        self.layout = self.seen_by_master = Layout.from_leaders({})
        self.lay_out(leaders)

    def lay_out(self, leaders: dict[int, int], *, at_once: bool = True) -> None:
        """Moves leaders. `at_once`: all brokers see it at the same moment."""
        live = {id: count for id, count in leaders.items() if count and self.nodes[id].is_alive}
        self.moves += live.keys() != self.layout.leaders.keys()
        self.layout = Layout.from_leaders(live, None, self.policy, moves=self.moves)
        if at_once:
            self.seen_by_master = self.layout
            for node in self.nodes.values():
                self.see(node)

    def see(self, node: Node) -> None:
        """Brings the broker's image up to date."""
        node.layout, node.master_epoch = self.layout, self.epoch
        static_bps, basis = self.layout.static_bps(self.limit_bps), self.layout.basis(self.limit_bps)
        share_bps = static_bps.get(node.id, 0)
        node.flow.rebase(self.limit_bps, share_bps, basis, self.layout.effective_policy, self.now_ms)

    def new_master(self, *, at_once: bool = True) -> None:
        self.epoch += 1
        self.ledger = FlowLedger(self.now_ms)
        if at_once:
            for node in self.nodes.values():
                node.master_epoch = self.epoch

    def answer(self, report: Report) -> Answer | None:
        """Returns the master's answer to a report, which may be late."""
        if report.epoch != self.epoch or not self.nodes[report.broker_id].is_alive:
            return None
        self.ledger.set_live_brokers([node.id for node in self.nodes.values() if node.is_alive])
        if not self.ledger.begin_report(report.broker_id, 1, report.sequence, self.now_ms):
            return None
        broker_id, layout = report.broker_id, self.seen_by_master
        share_answers = [self.ledger.handle_report(broker_id, KEY, line, layout, self.now_ms) for line in report.lines]
        reviews = self.ledger.limits_to_review(broker_id)
        if not report.lines:
            share_answers += [self.ledger.review(broker_id, key, self.now_ms) for key in reviews]
        self.ledger.sweep(self.now_ms)
        return Answer(report, [share_answer for share_answer in share_answers if share_answer is not None])

    def exchange(self, node: Node, *, is_due: bool) -> None:
        answer = self.answer(node.report(self.now_ms, is_due=is_due))
        if answer is not None:
            node.apply(answer, self.now_ms)

    def round(self, *, silent: tuple[int, ...] = ()) -> None:
        """Runs an interval in which everything arrives, with the immediate messages after the reports."""
        self.now_ms += INTERVAL_MS
        live = [node for node in self.nodes.values() if node.is_alive and node.id not in silent]
        for node in live:
            self.exchange(node, is_due=node.measure(self.now_ms))
        for _ in range(FOLLOW_UPS):
            for node in live:
                if node.flow.has_unreported_change or node.flow.is_waiting:
                    self.exchange(node, is_due=True)
        self.expire()

    def expire(self) -> None:
        for node in self.nodes.values():
            node.flow.expire(self.now_ms)

    @property
    def shares(self) -> list[int]:
        return [node.in_force_bps for node in self.nodes.values() if node.is_alive]

    @property
    def sum_bps(self) -> int:
        return sum(node.in_force_bps for node in self.nodes.values())
