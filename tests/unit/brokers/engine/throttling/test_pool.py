"""Several brokers share one limit through the flow master: together they pass the purchased rate, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import sharing_serial
from benchmarks.pooled_world import TICK_MS, PooledBrokers
from brokers.engine.flowmaster.pools import SILENT_MS, UNUSED_MS, PoolCharge, PoolLedger
from brokers.engine.throttling.charging import Limiter, Rule, charge
from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.pool import (
    ANSWER_MS_MAX,
    ANSWER_VALID_MS,
    CHARGE_INTERVAL_MS,
    CONTENDED_MS,
    IDLE_CHARGE_INTERVAL_MS,
    TOPIC_PREFIX,
    Pool,
    PoolOutbox,
    part_burst_ms,
    pool_burst_ms,
)
from quotas.pacing import BURST_MS, Pace
from quotas.throttle import DELAY_MS_MAX
from tests.testkit.depth import examples

MB = 1_000_000
KEY = ("ins-aaaaaaaa", 0, "")
RULE = Rule("instance_bandwidth", "producer_byte_rate", None, None)
LIMIT = 3 * MB


def pool(outbox: PoolOutbox | None = None, limit: float = LIMIT) -> Pool:
    result = Pool(KEY, PoolOutbox() if outbox is None else outbox, BURST_MS)
    result.set_limit(limit, 0)
    return result


def pooled(made: Pool, part: float = LIMIT / 3) -> Limiter:
    limiter = Limiter(RULE, part, 0, Pace(BURST_MS))
    limiter.set_limit(part, 0, LIMIT)
    limiter.use_pool(made)
    return limiter


# -- one broker's view -------------------------------------------------------------------------------------------------


def test_before_the_first_answer_the_brokers_own_part_holds() -> None:
    made = pool()
    assert made.debt_ms(0) == DELAY_MS_MAX
    assert charge((pooled(made),), MB, 0)[0] == 1_000 - part_burst_ms(BURST_MS)


def test_an_answer_shortens_the_debt_to_what_the_whole_limit_says() -> None:
    made = pool()
    limiter = pooled(made)
    charge((limiter,), MB, 0)
    made.begin_request(0)
    made.apply_answer(333_000 - 250_000, True, 2)
    assert limiter.debt_ms(2) == 83
    assert limiter.debt_ms(85) == 0


def test_unanswered_bytes_count_at_the_whole_limit() -> None:
    made = pool()
    made.apply_answer(0, False, 0)
    made.charge(LIMIT)
    assert made.debt_ms(0) == 1_000
    made.begin_request(0)
    made.charge(LIMIT)
    assert made.debt_ms(0) == 2_000
    assert made.debt_ms(0, excluded_bytes=LIMIT) == 1_000


def test_without_answers_the_own_part_holds_alone_again() -> None:
    made = pool()
    made.apply_answer(0, False, 0)
    assert made.is_current(ANSWER_VALID_MS)
    assert not made.is_current(ANSWER_VALID_MS + 1)
    made.apply_answer(0, False, 5_000)
    made.charge(1)
    made.begin_request(5_000)
    assert made.is_current(5_000 + ANSWER_MS_MAX)
    assert not made.is_current(5_000 + ANSWER_MS_MAX + 1)
    made.on_request_failed()
    assert made.unsent_bytes == 1, "what was not answered is charged again"


def test_bytes_paid_by_the_pool_are_paid_on_the_broker_as_well() -> None:
    """Otherwise a broker that used the whole limit for a minute would owe two minutes once others start."""
    made = pool()
    limiter = pooled(made)
    for now_ms in range(0, 60_000, 100):
        made.apply_answer(-1_000, True, now_ms)
        assert charge((limiter,), LIMIT // 10, now_ms)[0] <= 100
        made.begin_request(now_ms)
        made.apply_answer(99_000, True, now_ms)
    made.apply_answer(10**9, True, 60_000)
    assert limiter.debt_ms(60_000) <= 300


def test_a_higher_whole_limit_pays_sooner() -> None:
    made = pool()
    made.apply_answer(1_000_000, True, 0)
    made.set_limit(10 * LIMIT, 0)
    assert made.debt_ms(0) == 100


def test_a_pool_that_is_left_has_no_say() -> None:
    made = pool()
    limiter = pooled(made)
    limiter.use_pool(None)
    assert made.on_answer is None
    assert charge((limiter,), MB, 0)[0] == 1_000 - BURST_MS
    assert not made.unsent_bytes


# -- charges sent ------------------------------------------------------------------------------------------------------


def test_a_limit_in_use_is_charged_each_second_and_one_that_is_waited_for_soon() -> None:
    outbox = PoolOutbox()
    hurried: list[bool] = []
    outbox.on_request_due = lambda: hurried.append(True)
    made = pool(outbox)
    made.charge(10)
    assert outbox.take_due_pools(0) == [made]
    made.begin_request(0)
    made.charge(10)
    assert outbox.take_due_pools(IDLE_CHARGE_INTERVAL_MS - 1) == []
    made.mark_contended(IDLE_CHARGE_INTERVAL_MS - 1)
    assert hurried == [True]
    assert outbox.take_due_pools(IDLE_CHARGE_INTERVAL_MS - 1) == [made]


def test_a_contended_limit_is_asked_about_now_and_then_and_is_let_go_at_the_end() -> None:
    outbox = PoolOutbox()
    made = pool(outbox)
    made.mark_contended(0)
    sent = [
        now_ms
        for now_ms in range(0, 2 * CONTENDED_MS, CHARGE_INTERVAL_MS)
        if outbox.take_due_pools(now_ms) and not made.begin_request(now_ms)
    ]
    assert sent == [0, 1_000, 2_000, 3_000]
    assert len(outbox) == 0
    assert not made.is_in_outbox


# -- the flow master ---------------------------------------------------------------------------------------------------


def line(amount_bytes: int, limit_bps: int = LIMIT, *, contended: bool = False) -> PoolCharge:
    return PoolCharge(limit_bps, amount_bytes, contended)


def test_all_brokers_pay_into_one_pace() -> None:
    ledger = PoolLedger()
    first = ledger.charge(KEY, line(LIMIT), 0)
    second = ledger.charge(KEY, line(LIMIT, contended=True), 0)
    assert first is not None
    assert second is not None
    assert (first.due_in_us, second.due_in_us) == (900_000, 1_900_000)
    assert (first.is_contended, second.is_contended) == (False, True)


def test_idle_time_is_worth_the_burst_and_no_more() -> None:
    ledger = PoolLedger()
    ledger.charge(KEY, line(1), 0)
    answer = ledger.charge(KEY, line(0), 100_000)
    assert answer is not None
    assert answer.due_in_us == -pool_burst_ms(BURST_MS) * 1000


def test_an_older_request_of_a_broker_is_ignored() -> None:
    ledger = PoolLedger()
    assert ledger.begin_report(1, 5, 1, 0)
    assert not ledger.begin_report(1, 5, 1, 0)
    assert not ledger.begin_report(1, 4, 9, 0)
    assert ledger.begin_report(1, 6, 1, 0)
    assert ledger.begin_report(2, 5, 1, 0)


def test_an_unused_entry_is_forgotten_unless_it_is_in_debt() -> None:
    ledger = PoolLedger()
    ledger.charge(KEY, line(1), 0)
    ledger.charge(("ins-bbbbbbbb", 0, "x"), line(LIMIT * 60), 0)
    ledger.sweep(UNUSED_MS)
    assert len(ledger) == 1
    ledger.sweep(60_000)
    assert len(ledger) == 0


def test_invented_clients_of_one_instance_take_no_more_than_its_places() -> None:
    ledger = PoolLedger()
    for number in range(KEYS_MAX):
        assert ledger.charge(("ins-aaaaaaaa", 0, f"{number}"), line(1), 0) is not None
    assert ledger.charge(("ins-aaaaaaaa", 0, "more"), line(1), 0) is None
    assert ledger.charge(("ins-aaaaaaaa", 1, TOPIC_PREFIX + "t"), line(1), 0) is not None
    assert ledger.charge(KEY, line(1), 0) is not None
    assert ledger.charge(("ins-bbbbbbbb", 0, "more"), line(1), 0) is not None
    ledger.sweep(UNUSED_MS)
    assert ledger.charge(("ins-aaaaaaaa", 0, "more"), line(1), UNUSED_MS) is not None


# -- brokers together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", sharing_serial.SHAPES)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data(), trip_ms=st.sampled_from((0, 5, 40)), seed=st.integers(0, 9))
def test_serial_clients_get_what_was_bought_and_nobody_gets_more(
    shape: str, data: st.DataObject, trip_ms: int, seed: int
) -> None:
    """Clients send one request of 1 KB to 1 MB at a time, each as soon as they may, under 0.05 to 50 MB/s."""
    cases = [case for case in sharing_serial.cases() if case[0] == shape]
    _, size_bytes, limit_bps = data.draw(st.sampled_from(cases))
    outcome = sharing_serial.run(shape, size_bytes, limit_bps, trip_ms, seed)
    # Requests admitted into debt before the observed time are paid within it, and the other way round.
    span_s = max(20.0, 17 * size_bytes / limit_bps)
    assert outcome.mean_share >= 0.98 - 3 * size_bytes / limit_bps / span_s
    lag_s = (trip_ms + CHARGE_INTERVAL_MS + TICK_MS) / 1000
    # Three brokers admit by their own accounts until the answer arrives.
    assert outcome.peak_share <= 1.015 + 0.6 * lag_s + 0.3 * size_bytes / limit_bps


def test_one_brokers_small_requests_keep_its_part_beside_large_ones_elsewhere() -> None:
    brokers = PooledBrokers((1, 1, 1), 6 * MB)
    while brokers.now_ms < 20_000:
        brokers.admit(0, MB)
        brokers.admit(1, MB)
        while brokers.admit(2, 10_000):
            pass
        brokers.tick()
    assert sum(brokers.admitted[2]) / 20 >= 0.9 * 2 * MB
    assert brokers.peak_bytes_in_10_s() <= 1.02 * 60 * MB + 2 * MB


def test_the_first_request_of_an_idle_broker_waits_no_longer_than_its_part_says() -> None:
    brokers = PooledBrokers((1, 1, 1), 5 * MB)
    while brokers.now_ms < 10_000:
        brokers.admit(0, 100_000)
        brokers.tick()
    assert brokers.admit(1, 900_000)
    assert brokers.limiters[1].debt_ms(brokers.now_ms) <= 900_000 / (5 * MB / 3) * 1000


@pytest.mark.parametrize("silent", [(0,), (0, 1)])
def test_brokers_that_do_not_reach_the_flow_master_have_their_parts_alone(silent: tuple[int, ...]) -> None:
    brokers = PooledBrokers((1, 1, 1), 3 * MB)
    brokers.silent_since_ms = dict.fromkeys(silent, -SILENT_MS)
    while brokers.now_ms < 20_000:
        for broker in range(3):
            brokers.admit(broker, 20_000)
        brokers.tick()
    assert brokers.peak_bytes_in_10_s() <= 1.02 * 30 * MB + 3 * 20_000
    for broker in silent:
        assert sum(brokers.admitted[broker]) / 20 == pytest.approx(MB, rel=0.03)


def test_a_broker_that_sends_nothing_is_silent_after_a_while() -> None:
    ledger = PoolLedger(began_ms=1_000)
    ledger.begin_report(1, 5, 1, 1_000)
    assert ledger.silent_brokers((1, 2), 1_000 + SILENT_MS) == []
    ledger.begin_report(1, 5, 2, 1_000 + SILENT_MS)
    assert ledger.silent_brokers((1, 2), 1_001 + SILENT_MS) == [2]


def test_the_part_of_a_silent_broker_is_reserved() -> None:
    ledger = PoolLedger()
    ledger.charge(KEY, line(0), 0)
    answer = ledger.charge(KEY, line(0), 10_000, silent_bps=LIMIT // 3)
    assert answer is not None
    assert answer.due_in_us == pytest.approx(10_000_000 / 3, abs=200_000)
