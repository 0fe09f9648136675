"""Brokers with real shares under a real ledger, and the messages between them, which tests deliver, delay or lose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from brokers.engine.flowmaster.ledger import FlowKey, FlowLedger, GivenShare
from brokers.engine.throttling.flow_share import INTERVAL_MS, FlowShare, ReportedFlow
from brokers.engine.throttling.layout import Layout

KEY: Final[FlowKey] = ("ins-aaaaaaaa", 0, "")


@dataclass
class Report:
    broker_id: int
    epoch: int
    sequence: int
    lines: list[ReportedFlow]
    asked_ms: int


@dataclass
class Node:
    """A broker: its share of one limit, and what its clients want."""

    id: int
    flow: FlowShare = field(default_factory=lambda: FlowShare(None, 0))
    wanted_bps: int = 0
    sequence: int = 0
    is_alive: bool = True
    master_epoch: int = 0

    def measure(self, now_ms: int) -> bool:
        """As `FlowShare.measure`, of clients that move what they want, or what they may."""
        flow = self.flow
        is_due = flow.measure(now_ms) or self.wanted_bps > 0
        if flow._began_ms == now_ms:
            flow.admitted_bps, flow.wanted_bps = min(self.wanted_bps, int(flow.share_bps)), self.wanted_bps
        return is_due

    def report(self, now_ms: int, *, is_due: bool) -> Report:
        self.sequence += 1
        return Report(self.id, self.master_epoch, self.sequence, [self.flow.report()] if is_due else [], now_ms)

    def apply(self, answer: Answer, now_ms: int) -> None:
        report = answer.report
        if report.sequence == self.sequence and report.epoch == self.master_epoch:
            for share in answer.shares:
                self.flow.answered(share.basis, share.share_bps, share.is_waiting, report.asked_ms, now_ms)


@dataclass
class Answer:
    report: Report
    shares: list[GivenShare]


class World:
    """One limit of `limit_bps` on brokers that lead so many partitions."""

    def __init__(self, limit_bps: int, leaders: dict[int, int], policy: str = "adaptive") -> None:
        self.limit_bps = limit_bps
        self.policy = policy
        self.now_ms = 0
        self.epoch = 1
        self.ledger = FlowLedger(0)
        self.nodes = {id: Node(id, master_epoch=1) for id in leaders}
        self.layout = Layout.of({})
        self.lay_out(leaders)

    def lay_out(self, leaders: dict[int, int]) -> None:
        """Everybody sees it at the same moment."""
        self.layout = Layout.of({id: n for id, n in leaders.items() if self.nodes[id].is_alive}, None, self.policy)
        static_bps, basis = self.layout.static_bps(self.limit_bps), self.layout.basis(self.limit_bps)
        for node in self.nodes.values():
            share_bps = static_bps.get(node.id, 0)
            node.flow.rebase(self.limit_bps, share_bps, basis, self.layout.effective_policy, self.now_ms)

    def new_master(self) -> None:
        self.epoch += 1
        self.ledger = FlowLedger(self.now_ms)
        for node in self.nodes.values():
            node.master_epoch = self.epoch

    def answer(self, report: Report) -> Answer | None:
        """What the master makes of a report, be it late."""
        if report.epoch != self.epoch or not self.nodes[report.broker_id].is_alive:
            return None
        self.ledger.on_brokers([node.id for node in self.nodes.values() if node.is_alive])
        if not self.ledger.begin(report.broker_id, 1, report.sequence, self.now_ms):
            return None
        taken = [self.ledger.take(report.broker_id, KEY, line, self.layout, self.now_ms) for line in report.lines]
        reviews = self.ledger.to_review(report.broker_id)
        if not report.lines:
            taken += [self.ledger.review(report.broker_id, key, self.now_ms) for key in reviews]
        self.ledger.sweep(self.now_ms)
        return Answer(report, [given for given in taken if given is not None])

    def exchange(self, node: Node, *, is_due: bool) -> None:
        answer = self.answer(node.report(self.now_ms, is_due=is_due))
        if answer is not None:
            node.apply(answer, self.now_ms)

    def round(self, *, silent: tuple[int, ...] = ()) -> None:
        """An interval in which everything arrives, with what is said at once behind the reports."""
        self.now_ms += INTERVAL_MS
        live = [node for node in self.nodes.values() if node.is_alive and node.id not in silent]
        for node in live:
            self.exchange(node, is_due=node.measure(self.now_ms))
        for _ in range(4):
            for node in live:
                if node.flow.has_to_say or node.flow.is_waiting:
                    self.exchange(node, is_due=True)
        self.expire()

    def expire(self) -> None:
        for node in self.nodes.values():
            node.flow.expire(self.now_ms)

    @property
    def shares(self) -> list[int]:
        return [int(node.flow.share_bps) for node in self.nodes.values() if node.is_alive]

    @property
    def sum_bps(self) -> int:
        """Of who leads anything."""
        return sum(int(self.nodes[id].flow.share_bps) for id in self.layout.leaders)
