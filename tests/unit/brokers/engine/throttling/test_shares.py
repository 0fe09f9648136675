"""Records of coordinators are charged to the bandwidth of their instance."""

from __future__ import annotations

from brokers.engine.throttling.charging import charge
from brokers.engine.throttling.layout import Layout
from brokers.engine.throttling.shares import STATE_BURST_MS, STATE_BYTES_PER_S_MIN, InstanceShares

MB = 1_000_000


def shares(*, leaders: dict[int, int], produce_bps: int = 4 * MB) -> InstanceShares:
    result = InstanceShares()
    result.update(1, Layout.from_leaders(leaders), produce_bps, MB, 0)
    return result


def test_state_writes_beyond_the_bandwidth_wait_until_they_are_paid_for() -> None:
    used = shares(leaders={1: 1, 2: 1})
    used.charge_state(2 * MB * STATE_BURST_MS // 1000, 0)
    assert used.state_debt_ms(0) == 0, "unused bandwidth is worth so long"
    used.charge_state(6 * MB, 0)
    assert used.state_debt_ms(0) == 3_000
    assert used.state_debt_ms(2_000) == 1_000


def test_state_writes_take_from_the_bandwidth_of_produces() -> None:
    used = shares(leaders={1: 1})
    assert used.produce is not None
    used.charge_state(40 * MB, 0)
    assert charge((used.produce,), 1, 0)[0] > 8_000


def test_an_instance_that_produces_at_its_limit_commits_without_delay() -> None:
    used = shares(leaders={1: 1})
    assert used.produce is not None
    charge((used.produce,), 400 * MB, 0)
    used.charge_state(1_000, 0)
    assert used.state_debt_ms(0) == 0


def test_a_broker_that_leads_nothing_of_the_instance_is_one_more_among_those_that_do() -> None:
    used = shares(leaders={2: 1, 3: 1}, produce_bps=3 * MB)
    assert used.produce is not None
    assert used.produce.limit_per_s == MB
    used.charge_state(MB * STATE_BURST_MS // 1000 + MB, 0)
    assert used.state_debt_ms(0) == 1_000


def test_commits_go_on_without_any_bandwidth() -> None:
    used = shares(leaders={1: 1}, produce_bps=0)
    used.charge_state(STATE_BYTES_PER_S_MIN * STATE_BURST_MS // 1000, 0)
    assert used.state_debt_ms(0) == 0


def test_before_anything_is_known_of_an_instance_nobody_waits() -> None:
    used = InstanceShares()
    used.charge_state(MB, 0)
    assert used.state_debt_ms(0) == 0
