"""Demand is estimated from the time that clients were delayed; simulated clients send as soon as they may."""

from __future__ import annotations

import heapq

import pytest

from brokers.engine.throttling.charging import Limiter, Rule, charge
from brokers.engine.throttling.demand import FREE_DIVISOR, estimate_demand_bps
from brokers.engine.throttling.flow_share import FlowShare
from quotas.pacing import Pace

KB = 1_000
MB = 1_000_000
RULE = Rule("instance_bandwidth", "producer_byte_rate", None, None)


def limited(share_bps: int) -> tuple[Limiter, FlowShare]:
    limiter = Limiter(RULE, share_bps, 0, Pace(250))
    flow = FlowShare(limiter, 0)
    flow.rebase(share_bps, share_bps, 1, "adaptive", 0)
    return limiter, flow


def closed_loop(limiter: Limiter, flow: FlowShare, *, connections: int, natural_bps: int, seconds: int) -> list[int]:
    """Return the estimated demand of each second. Without delays all connections would transfer `natural_bps`; each
    sends its next batch once it was answered and the delay is over.
    """
    batch = 100 * KB
    service_ms = batch * 1000 * connections / natural_bps
    due = [(number * service_ms / connections, number) for number in range(connections)]
    heapq.heapify(due)
    result = []
    for second in range(1, seconds + 1):
        while due[0][0] < second * 1000:
            at_ms, number = heapq.heappop(due)
            delay_ms, _ = charge((limiter,), batch, int(at_ms))
            heapq.heappush(due, (at_ms + delay_ms + service_ms, number))
        flow.measure(second * 1000)
        result.append(flow.wanted_bps)
    return result


@pytest.mark.parametrize("natural_bps", [4 * MB, 10 * MB, 20 * MB])
def test_demand_of_one_client_is_what_it_would_move(natural_bps: int) -> None:
    wanted = closed_loop(*limited(2 * MB), connections=1, natural_bps=natural_bps, seconds=8)
    assert all(abs(bps - natural_bps) <= 0.2 * natural_bps for bps in wanted[3:]), wanted


def test_demand_of_many_clients_is_at_least_what_they_would_move_and_bounded() -> None:
    wanted = closed_loop(*limited(2 * MB), connections=40, natural_bps=20 * MB, seconds=8)
    assert all(20 * MB <= bps <= 1.2 * FREE_DIVISOR * 2 * MB for bps in wanted[3:]), wanted


@pytest.mark.parametrize("connections", [1, 40])
def test_demand_of_clients_that_never_wait_is_what_they_move(connections: int) -> None:
    limiter, flow = limited(20 * MB)
    wanted = closed_loop(limiter, flow, connections=connections, natural_bps=2 * MB, seconds=5)
    assert wanted[-1] == flow.admitted_bps == pytest.approx(2 * MB, rel=0.1)


def test_a_large_request_is_wanted_in_each_interval_in_which_it_is_paid_for() -> None:
    limiter, flow = limited(200 * KB)
    charge((limiter,), MB, 0)
    wanted = []
    for second in range(1, 4):
        flow.measure(second * 1000)
        wanted.append(flow.wanted_bps)
    assert flow.admitted_bps == 0
    assert min(wanted) >= 0.95 * 200 * KB * FREE_DIVISOR


def test_a_client_held_back_by_a_limit_of_its_own_wants_no_more_of_the_instances() -> None:
    limiter, flow = limited(2 * MB)
    strict = Limiter(RULE, 100 * KB, 0, Pace(0))
    assert charge((strict, limiter), MB, 0) == (10_000, strict)
    flow.measure(1_000)
    assert flow.wanted_bps == flow.admitted_bps == MB


def test_the_estimate_never_is_below_what_was_admitted_and_never_beyond_its_bound() -> None:
    for admitted_bps in (0, 1, 1_000, MB):
        for waited_ms in (0, 1, 500, 999, 1_000, 5_000):
            for share_bps in (0, 1, 500, 2 * MB):
                wanted = estimate_demand_bps(admitted_bps, waited_ms, 1_000, share_bps)
                assert admitted_bps <= wanted <= FREE_DIVISOR * max(admitted_bps, share_bps)
