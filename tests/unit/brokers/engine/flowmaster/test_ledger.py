"""Shares of the flow master: they follow demand, never exceed the limit in total, and starve no broker (CKA-34 to
CKA-37).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.flowmaster.ledger import UNREPORTED_MS, FlowLedger
from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.flow_share import LEASE_MS, ReportedFlow
from brokers.engine.throttling.layout import Layout
from tests.testkit.depth import examples
from tests.testkit.flow import Report, World

MB = 1_000_000
THREE = {1: 1, 2: 1, 3: 1}
# A policy may return to the static shares slowly.
ROUNDS_OF_REST = 60


def test_one_hot_broker_gets_nearly_everything_within_three_reports() -> None:
    world = World(20 * MB, THREE)
    world.nodes[2].wanted_bps = 100 * MB
    for _ in range(3):
        world.round()
    assert world.shares[1] >= 0.93 * 20 * MB
    assert world.sum_bps <= 20 * MB
    assert min(world.shares) >= 20 * MB // 3 // 40, "a new broker gets a share"


def test_the_hot_spot_moves_and_the_bandwidth_follows_within_three_reports() -> None:
    world = World(20 * MB, THREE)
    world.nodes[2].wanted_bps = 100 * MB
    for _ in range(5):
        world.round()
    world.nodes[2].wanted_bps, world.nodes[3].wanted_bps = 0, 100 * MB
    for _ in range(3):
        world.round()
    assert world.shares[2] >= 0.93 * 20 * MB


def test_without_demand_all_shares_are_static_again_and_the_ledger_is_empty() -> None:
    world = World(21 * MB, THREE)
    world.nodes[1].wanted_bps = 100 * MB
    for _ in range(4):
        world.round()
    world.nodes[1].wanted_bps = 0
    for _ in range(ROUNDS_OF_REST):
        world.round()
    assert world.shares == [7 * MB] * 3
    assert len(world.ledger) == 0
    assert not any(node.flow.measure(world.now_ms + 1_000) for node in world.nodes.values()), "nor reports anybody"


def test_idle_limits_cost_the_master_nothing() -> None:
    world = World(21 * MB, THREE)
    for _ in range(3):
        world.round()
    assert len(world.ledger) == 0


def test_while_static_shares_are_sufficient_all_shares_are_static() -> None:
    world = World(21 * MB, THREE)
    world.nodes[1].wanted_bps = 5 * MB
    for _ in range(3):
        world.round()
    assert world.shares == [7 * MB] * 3


def test_a_share_is_raised_only_after_the_others_reported_lower_ones() -> None:
    world = World(20 * MB, THREE)
    world.nodes[1].wanted_bps = 100 * MB
    for _ in range(7):
        world.round(silent=(3,))
        assert world.sum_bps <= 20 * MB
    static_bps = world.layout.static_bps(20 * MB)
    assert world.shares[2] == static_bps[3], "a silent broker keeps its share"
    assert 13 * MB - MB <= world.shares[0] <= 20 * MB - static_bps[3]


def test_a_silent_broker_keeps_its_last_share_and_the_others_share_the_rest() -> None:
    """CKA-44, with CKafka's own policy."""
    world = World(90, THREE, "normalised")
    for id, wanted in ((1, 30), (2, 10), (3, 28)):
        world.nodes[id].wanted_bps = wanted
    for _ in range(3):
        world.round()
    reserved = world.shares[2]
    for _ in range(4):
        world.round(silent=(3,))
    assert world.ledger._accounts[next(iter(world.ledger._accounts))].targets_bps is not None
    assert world.shares[0] + world.shares[1] <= 90 - reserved
    assert world.shares[0] > world.shares[1]


def test_a_silent_broker_falls_back_to_at_most_its_last_share_until_its_next_report() -> None:
    world = World(20 * MB, THREE)
    world.nodes[1].wanted_bps = 100 * MB
    for _ in range(4):
        world.round()
    large, *small = world.shares
    world.now_ms += LEASE_MS
    world.expire()
    assert world.shares == [min(large, world.layout.static_bps(20 * MB)[1]), *small]
    for _ in range(3):
        world.round()
    assert world.shares[0] >= 0.93 * 20 * MB


def test_a_new_layout_is_static_for_an_interval_and_distributed_afterwards() -> None:
    """CKA-34, CKA-43: leaderships of a dead broker move."""
    world = World(60 * MB, {1: 2, 2: 2, 3: 2})
    world.nodes[1].wanted_bps = 500 * MB
    for _ in range(4):
        world.round()
    world.nodes[3].is_alive = False
    world.lay_out({1: 3, 2: 3, 3: 0})
    assert world.shares == [30 * MB, 30 * MB]
    for _ in range(3):
        world.round()
    assert world.shares[0] >= 0.9 * 60 * MB


def test_a_new_master_changes_nothing_before_every_broker_reported() -> None:
    """CKA-36."""
    world = World(20 * MB, THREE)
    world.nodes[1].wanted_bps = 100 * MB
    for _ in range(4):
        world.round()
    before = world.shares
    world.new_master()
    world.nodes[1].wanted_bps, world.nodes[2].wanted_bps = 0, 100 * MB
    for _ in range(2):
        world.round(silent=(1,))
        assert world.shares == before
    for _ in range(3):
        world.round()
    assert world.shares[1] >= 0.93 * 20 * MB


def test_a_new_limit_is_in_force_within_two_intervals() -> None:
    """CKA-37."""
    world = World(20 * MB, THREE)
    world.nodes[1].wanted_bps = 100 * MB
    for _ in range(4):
        world.round()
    world.limit_bps = 40 * MB
    world.lay_out(THREE)
    assert world.sum_bps == 40 * MB
    world.round()
    world.round()
    assert world.shares[0] >= 0.93 * 40 * MB


def test_an_outdated_report_is_ignored() -> None:
    ledger = FlowLedger(0)
    assert ledger.begin_report(1, 7, 2, 0)
    assert not ledger.begin_report(1, 7, 2, 0)
    assert not ledger.begin_report(1, 7, 1, 0)
    assert not ledger.begin_report(1, 6, 3, 0), "of an earlier incarnation"
    assert ledger.begin_report(1, 8, 1, 0)


def test_a_share_with_another_basis_is_not_answered() -> None:
    ledger, layout = FlowLedger(0), Layout.from_leaders(THREE, None, "adaptive")
    ledger.begin_report(1, 1, 1, 0)
    line = ReportedFlow(layout.basis(20) + 1, 20, 7, 7, 70)
    assert ledger.handle_report(1, ("ins-aaaaaaaa", 0, ""), line, layout, 0) is None
    assert ledger.handle_report(4, ("ins-aaaaaaaa", 0, ""), line._replace(basis=layout.basis(20)), layout, 0) is None


def test_invented_clients_of_an_instance_use_only_its_own_capacity() -> None:
    ledger, layout = FlowLedger(0), Layout.from_leaders(THREE, None, "adaptive")
    ledger.begin_report(1, 1, 1, 0)
    line = ReportedFlow(layout.basis(9_000), 9_000, 3_000, 3_000, 9_000)
    given = [
        ledger.handle_report(1, ("ins-aaaaaaaa", 0, f"client-{number}"), line, layout, 0)
        for number in range(KEYS_MAX + 10)
    ]
    assert [share is None for share in given] == [False] * KEYS_MAX + [True] * 10
    assert ledger.handle_report(1, ("ins-bbbbbbbb", 0, "client"), line, layout, 0) is not None
    assert ledger.handle_report(1, ("ins-aaaaaaaa", 0, ""), line, layout, 0) is not None
    ledger.sweep(UNREPORTED_MS)
    assert len(ledger) == 0
    assert ledger.handle_report(1, ("ins-aaaaaaaa", 0, "another"), line, layout, UNREPORTED_MS) is not None


@pytest.mark.parametrize("policy", ["normalised", "adaptive"])
def test_noisy_demand_that_fits_leaves_the_shares_alone(policy: str) -> None:
    world = World(30 * MB, THREE, policy)
    for number in range(12):
        for id, node in world.nodes.items():
            node.wanted_bps = 5 * MB + (number * id % 3) * MB
        world.round()
    assert world.shares == [10 * MB] * 3


# -- lost and late messages, dead brokers ------------------------------------------------------------------------------

WHAT = ("report", "report", "report", "lose", "drop", "late", "old", "demand", "time", "time", "master", "kill", "move")
steps = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(1, 4), st.integers(0, 5)), max_size=120)


class Storm:
    """Applies steps and checks the invariant after each."""

    def __init__(self, policy: str) -> None:
        self.world = World(10 * MB + 1, {1: 1, 2: 2, 3: 1, 4: 3}, policy)
        self.delayed: list[Report] = []

    def step(self, what: str, id: int, number: int) -> None:
        world, node = self.world, self.world.nodes[id]
        match what:
            case "report" | "lose" | "drop" | "late" if node.is_alive:
                report = node.report(world.now_ms, is_due=node.measure(world.now_ms) or node.flow.has_unreported_change)
                if what == "late":
                    self.delayed.append(report)
                elif what != "lose":
                    answer = world.answer(report)
                    if answer is not None and what == "report":
                        node.apply(answer, world.now_ms)
            case "old" if self.delayed:
                # Its broker no longer waits, and the response is lost.
                world.answer(self.delayed.pop(number % len(self.delayed)))
            case "demand":
                node.wanted_bps = (0, 1, MB, 5 * MB, 20 * MB, 500 * MB)[number]
            case "time":
                world.now_ms += (10, 100, 500, 1_000, 2_500, 4_000)[number]
                world.expire()
            case "master":
                world.new_master()
            case "kill" if len([node for node in world.nodes.values() if node.is_alive]) > 1:
                node.is_alive = False
                world.lay_out(dict(world.layout.leaders))
            case "move":
                leaders = {node: (node + number) % 3 for node in world.nodes}
                world.lay_out(leaders)
        assert world.sum_bps <= world.limit_bps
        assert all(int(world.nodes[leader].flow.share_bps) > 0 for leader in world.layout.leaders)


@settings(deadline=None, max_examples=examples(2_000))
@given(steps, st.sampled_from(["adaptive", "normalised"]))
def test_shares_in_force_never_exceed_the_limit_in_total(moves: list[Any], policy: str) -> None:
    storm = Storm(policy)
    for move in moves:
        storm.step(*move)


@settings(deadline=None, max_examples=examples(400))
@given(steps)
def test_after_any_storm_the_bandwidth_follows_demand_again(moves: list[Any]) -> None:
    storm = Storm("adaptive")
    for move in moves:
        storm.step(*move)
    world = storm.world
    leading = sorted(world.layout.leaders)
    if len(leading) < 2:
        return
    for node in world.nodes.values():
        node.wanted_bps = 0
    world.nodes[leading[0]].wanted_bps = 500 * MB
    for _ in range(8):
        world.round()
        assert world.sum_bps <= world.limit_bps
    assert world.nodes[leading[0]].flow.share_bps >= 0.85 * world.limit_bps
