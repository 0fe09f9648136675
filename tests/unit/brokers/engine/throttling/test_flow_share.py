"""A broker's share is static or set by the flow master; without answers it falls back, and never increases."""

from __future__ import annotations

from brokers.engine.throttling.charging import Limiter, Rule, charge
from brokers.engine.throttling.flow_share import (
    INTERVAL_MS,
    LEASE_MS,
    MEASURED_MS_MIN,
    REPORT_MS,
    UNMEASURED,
    FlowShare,
)
from quotas.pacing import Pace

MB = 1_000_000
BOUGHT = 20 * MB
STATIC = 7 * MB
BASIS = 5


def shared(policy: str = "adaptive") -> FlowShare:
    limiter = Limiter(Rule("instance_bandwidth", "producer_byte_rate", None, None), 0, 0, Pace(250))
    flow = FlowShare(limiter, 0)
    flow.rebase(BOUGHT, STATIC, BASIS, policy, 0)
    return flow


def limits(flow: FlowShare) -> tuple[float, float]:
    assert flow.limiter is not None
    return flow.limiter.limit_per_s, flow.limiter.whole_limit_per_s


def test_before_any_answer_the_share_is_static_and_the_limiter_knows_the_whole() -> None:
    flow = shared()
    assert limits(flow) == (STATIC, BOUGHT)
    assert flow.reason == "not_reported"


def test_an_answer_is_in_force_at_once_and_is_said_back() -> None:
    flow = shared()
    flow.apply_answer(BASIS, 18 * MB, False, 1_000, 1_010)
    assert limits(flow) == (18 * MB, BOUGHT)
    assert (flow.has_unreported_change, flow.reason) == (True, "follows_demand")
    assert flow.report().share_bps == 18 * MB
    assert not flow.has_unreported_change


def test_an_answer_of_another_basis_or_one_that_took_too_long_says_nothing() -> None:
    flow = shared()
    flow.apply_answer(BASIS + 1, 18 * MB, False, 1_000, 1_010)
    flow.apply_answer(BASIS, 18 * MB, False, 1_000, 1_000 + LEASE_MS)
    assert limits(flow) == (STATIC, BOUGHT)


def test_without_answers_for_three_intervals_a_large_share_becomes_the_static_one_and_a_small_one_stays() -> None:
    large, small = shared(), shared()
    large.apply_answer(BASIS, 18 * MB, False, 1_000, 1_010)
    small.apply_answer(BASIS, MB, False, 1_000, 1_010)
    assert not large.expire(1_000 + LEASE_MS - 1)
    assert large.expire(1_000 + LEASE_MS)
    assert small.expire(1_000 + LEASE_MS)
    assert (limits(large)[0], limits(small)[0]) == (STATIC, MB)
    assert large.reason == small.reason == "no_answer"


def test_the_next_answer_brings_it_back() -> None:
    flow = shared()
    flow.apply_answer(BASIS, 18 * MB, False, 1_000, 1_010)
    flow.expire(9_000)
    assert flow.measure(9_000), "it goes on asking though nobody uses it"
    flow.apply_answer(BASIS, 18 * MB, False, 9_000, 9_010)
    assert (limits(flow)[0], flow.reason) == (18 * MB, "follows_demand")


def test_another_layout_is_static_at_once_and_says_nothing_of_demand_for_an_interval() -> None:
    flow = shared()
    flow.apply_answer(BASIS, 18 * MB, False, 1_000, 1_010)
    flow.rebase(BOUGHT, 10 * MB, BASIS + 1, "adaptive", 1_500)
    assert (limits(flow)[0], flow.reason) == (10 * MB, "layout_changed")
    assert flow.measure(1_500 + MEASURED_MS_MIN - 1)
    assert flow.report().admitted_bps == UNMEASURED
    assert flow.measure(2_000)
    assert flow.report().admitted_bps == 0


def test_a_layout_that_comes_again_gives_back_nothing_that_was_given_up_in_it() -> None:
    """A broker that did not see the layout in between still holds the share that was given up."""
    flow = shared()
    flow.apply_answer(BASIS, MB, False, 1_000, 1_010)
    flow.rebase(BOUGHT, MB // 2, BASIS + 1, "adaptive", 1_100)
    assert limits(flow)[0] == MB // 2
    flow.rebase(BOUGHT, STATIC, BASIS, "adaptive", 1_200)
    assert limits(flow)[0] == MB
    flow.rebase(BOUGHT, STATIC, BASIS + 1, "adaptive", 1_300)
    flow.rebase(BOUGHT, STATIC, BASIS, "adaptive", 1_400)
    assert limits(flow)[0] == MB
    assert flow.measure(2_000), "the flow master is to hear of it"
    flow.apply_answer(BASIS, STATIC, False, 2_000, 2_010)
    assert limits(flow)[0] == STATIC


def test_bytes_admitted_under_a_large_share_are_not_owed_under_a_small_one() -> None:
    """Otherwise ten seconds at 18 MB/s would be owed for four minutes at 0.7 MB/s."""
    flow = shared()
    assert flow.limiter is not None
    flow.apply_answer(BASIS, 18 * MB, False, 0, 0)
    for ms in range(0, 10_000, 100):
        charge((flow.limiter,), 18 * MB // 10, ms)
    flow.apply_answer(BASIS, 700_000, False, 10_000, 10_000)
    assert charge((flow.limiter,), 100_000, 10_500)[0] < 1_000


def test_a_larger_share_gives_no_credit_for_the_time_before() -> None:
    flow = shared()
    assert flow.limiter is not None
    flow.apply_answer(BASIS, MB, False, 0, 0)
    for ms in range(0, 10_000, 100):
        charge((flow.limiter,), MB // 10, ms)
    flow.apply_answer(BASIS, 10 * MB, False, 10_000, 10_000)
    admitted = 0
    for ms in range(10_000, 11_000, 10):
        if flow.limiter.pace is not None and flow.limiter.pace.debt_ms(ms) == 0:
            charge((flow.limiter,), 100_000, ms)
            admitted += 100_000
    assert admitted <= 13 * MB


def test_the_policy_static_reports_nothing_and_takes_no_answer() -> None:
    flow = shared("static")
    assert flow.limiter is not None
    charge((flow.limiter,), MB, 10)
    assert not flow.measure(INTERVAL_MS)
    assert flow.admitted_bps == MB, "it is shown all the same"
    flow.apply_answer(BASIS, BOUGHT, False, 1_000, 1_010)
    assert (limits(flow)[0], flow.reason) == (STATIC, "static")


def test_an_idle_broker_with_its_static_share_reports_no_more() -> None:
    flow = shared()
    assert flow.limiter is not None
    charge((flow.limiter,), MB, 10)
    assert flow.measure(1_000)
    flow.apply_answer(BASIS, STATIC, False, 1_000, 1_001)
    assert flow.measure(2_000), "that it is idle has to be said"
    flow.report()
    flow.apply_answer(BASIS, STATIC, False, 2_000, 2_001)
    assert not flow.measure(3_000)
    assert flow.is_idle


def test_an_unanswered_report_is_repeated() -> None:
    """Otherwise the flow master would wait for the report."""
    flow = shared()
    flow.rebase(BOUGHT, STATIC, BASIS + 1, "adaptive", 100)
    flow.report()
    assert flow.measure(1_000)
    flow.report()
    assert flow.measure(2_000)
    flow.apply_answer(BASIS + 1, STATIC, False, 2_000, 2_010)
    assert not flow.measure(3_000)


def test_a_changing_demand_is_reported_between_whole_intervals_and_a_constant_one_is_not() -> None:
    flow = shared()
    limiter = flow.limiter
    assert limiter is not None
    assert not flow.reports_often
    limiter.record_wait(300, 1_100)
    assert flow.reports_often, "somebody waits"
    assert flow.measure(1_000 + REPORT_MS)
    assert not flow.reports_often
    flow.apply_answer(BASIS, 18 * MB, False, 1_500, 1_510)
    assert flow.reports_often, "others have to give it up, or get it back"
