"""Several brokers share one limit through the flow master's pace: what was bought passes, and no more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.flowmaster.pools import UNUSED_MS, PoolCharge, PoolLedger
from brokers.engine.throttling.charging import Limiter, Rule, charge
from brokers.engine.throttling.client_shares import KEYS_MAX
from brokers.engine.throttling.pool import (
    ANSWER_MS_MAX,
    CHARGE_INTERVAL_MS,
    CONTENDED_MS,
    IDLE_CHARGE_INTERVAL_MS,
    KNOWN_MS,
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
    result.limit(limit, 0)
    return result


def pooled(made: Pool, part: float = LIMIT / 3) -> Limiter:
    limiter = Limiter(RULE, part, 0, Pace(BURST_MS))
    limiter.limit(part, 0, LIMIT)
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
    made.sent(0)
    made.answered(333_000 - 250_000, True, 2)
    assert limiter.debt_ms(2) == 83
    assert limiter.debt_ms(85) == 0


def test_what_is_not_answered_yet_counts_at_the_whole_limit() -> None:
    made = pool()
    made.answered(0, False, 0)
    made.charge(LIMIT)
    assert made.debt_ms(0) == 1_000
    made.sent(0)
    made.charge(LIMIT)
    assert made.debt_ms(0) == 2_000
    assert made.debt_ms(0, later_bytes=LIMIT) == 1_000


def test_without_answers_the_own_part_holds_alone_again() -> None:
    made = pool()
    made.answered(0, False, 0)
    assert made.is_known(KNOWN_MS)
    assert not made.is_known(KNOWN_MS + 1)
    made.answered(0, False, 5_000)
    made.charge(1)
    made.sent(5_000)
    assert made.is_known(5_000 + ANSWER_MS_MAX)
    assert not made.is_known(5_000 + ANSWER_MS_MAX + 1)
    made.lost()
    assert made.unsent_bytes == 1, "what was not answered is charged again"


def test_what_the_pool_paid_is_paid_on_the_broker_as_well() -> None:
    """Otherwise a broker that had the whole limit for a minute would owe two minutes when others begin."""
    made = pool()
    limiter = pooled(made)
    for now_ms in range(0, 60_000, 100):
        made.answered(-1_000, True, now_ms)
        assert charge((limiter,), LIMIT // 10, now_ms)[0] <= 100
        made.sent(now_ms)
        made.answered(99_000, True, now_ms)
    made.answered(10**9, True, 60_000)
    assert limiter.debt_ms(60_000) <= 300


def test_a_higher_whole_limit_pays_sooner() -> None:
    made = pool()
    made.answered(1_000_000, True, 0)
    made.limit(10 * LIMIT, 0)
    assert made.debt_ms(0) == 100


def test_a_pool_that_is_left_has_no_say() -> None:
    made = pool()
    limiter = pooled(made)
    limiter.use_pool(None)
    assert made.on_answer is None
    assert charge((limiter,), MB, 0)[0] == 1_000 - BURST_MS
    assert not made.unsent_bytes


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_limit_in_use_is_charged_each_second_and_one_that_is_waited_for_soon() -> None:
    outbox = PoolOutbox()
    hurried: list[bool] = []
    outbox.on_hurry = lambda: hurried.append(True)
    made = pool(outbox)
    made.charge(10)
    assert outbox.take(0) == [made]
    made.sent(0)
    made.charge(10)
    assert outbox.take(IDLE_CHARGE_INTERVAL_MS - 1) == []
    made.wait(IDLE_CHARGE_INTERVAL_MS - 1)
    assert hurried == [True]
    assert outbox.take(IDLE_CHARGE_INTERVAL_MS - 1) == [made]


def test_a_contended_limit_is_asked_about_now_and_then_and_is_let_go_at_the_end() -> None:
    outbox = PoolOutbox()
    made = pool(outbox)
    made.wait(0)
    sent = [
        now_ms
        for now_ms in range(0, 2 * CONTENDED_MS, CHARGE_INTERVAL_MS)
        if outbox.take(now_ms) and not made.sent(now_ms)
    ]
    assert sent == [0, 1_000, 2_000, 3_000]
    assert len(outbox) == 0
    assert not made.is_listed


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
    assert ledger.begin(1, 5, 1, 0)
    assert not ledger.begin(1, 5, 1, 0)
    assert not ledger.begin(1, 4, 9, 0)
    assert ledger.begin(1, 6, 1, 0)
    assert ledger.begin(2, 5, 1, 0)


def test_what_nobody_uses_is_forgotten_unless_it_is_in_debt() -> None:
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


class Brokers:
    """Brokers with real limiters and a real ledger; a request takes `trip_ms` there and back."""

    def __init__(self, count: int, limit: int, trip_ms: int) -> None:
        self.limit, self.trip_ms, self.now_ms = limit, trip_ms, 0
        self.ledger = PoolLedger()
        self.outboxes = [PoolOutbox() for _ in range(count)]
        self.pools = [Pool(KEY, outbox, BURST_MS) for outbox in self.outboxes]
        self.limiters = []
        for made in self.pools:
            made.limit(limit, 0)
            limiter = Limiter(RULE, limit / count, 0, Pace(BURST_MS))
            limiter.limit(limit / count, 0, limit)
            limiter.use_pool(made)
            self.limiters.append(limiter)
        self.answers: list[tuple[int, Pool, int, bool]] = []
        # Brokers that do not reach the flow master, which comes to know it after a while.
        self.silent: tuple[int, ...] = ()
        # Bytes admitted in each step.
        self.admitted: list[int] = [0]

    def admit(self, broker: int, size_bytes: int) -> bool:
        """Appends, if nothing is owed; the admission is recorded."""
        if self.limiters[broker].debt_ms(self.now_ms):
            return False
        charge((self.limiters[broker],), size_bytes, self.now_ms)
        self.admitted[-1] += size_bytes
        return True

    def tick(self) -> None:
        self.now_ms += TICK_MS
        if self.now_ms % STEP_MS == 0:
            self.admitted.append(0)
        silent_bps = 0
        for broker, outbox in enumerate(self.outboxes):
            if broker in self.silent:
                silent_bps += self.limit // len(self.outboxes)
                continue
            for made in outbox.take(self.now_ms):
                is_contended = made.contended_until_ms > self.now_ms
                charged = PoolCharge(self.limit, made.sent(self.now_ms), is_contended)
                answer = self.ledger.charge(KEY, charged, self.now_ms, silent_bps)
                assert answer is not None
                self.answers.append((self.now_ms + self.trip_ms, made, answer.due_in_us, answer.is_contended))
        for _, made, due_in_us, is_contended in [each for each in self.answers if each[0] <= self.now_ms]:
            made.answered(due_in_us - self.trip_ms * 1000, is_contended, self.now_ms)
        self.answers = [each for each in self.answers if each[0] > self.now_ms]

    def between(self, begin_ms: int, end_ms: int) -> int:
        return sum(self.admitted[begin_ms // STEP_MS : end_ms // STEP_MS])

    def most_over_10_s(self) -> int:
        steps = 10_000 // STEP_MS
        return max(sum(self.admitted[at : at + steps]) for at in range(max(1, len(self.admitted) - steps)))


TICK_MS = 5
STEP_MS = 100
SIZES_AND_LIMITS = (
    (1_000, 50_000),
    (20_000, 50_000),
    (1_000_000, 500_000),
    (20_000, 5 * MB),
    (100_000, 5 * MB),
    (1_000_000, 5 * MB),
    (100_000, 50 * MB),
    (1_000_000, 50 * MB),
)
SHAPES = ("one key", "in turn", "at random", "moving", "all at once", "in turn after one")


def target(shape: str, number: int, now_ms: int, dice: random.Random) -> int:
    match shape:
        case "in turn":
            return number % 3
        case "at random":
            return dice.randrange(3)
        case "moving":
            return now_ms // 2_500 % 3
        case "in turn after one":
            return number % 3 if now_ms > 5_000 else 1
    return 0


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from(SIZES_AND_LIMITS), st.sampled_from((0, 5, 40)), st.randoms())
def test_serial_clients_get_what_was_bought_and_nobody_gets_more(
    shape: str, size_and_limit: tuple[int, int], trip_ms: int, dice: random.Random
) -> None:
    """One request at a time, each as soon as it is let; "all at once": one client for each broker."""
    size_bytes, limit = size_and_limit
    brokers, number = Brokers(3, limit, trip_ms), 0
    length_ms = max(20_000, 20 * size_bytes * 1000 // limit)
    while brokers.now_ms < length_ms:
        targets = range(3) if shape == "all at once" else (target(shape, number, brokers.now_ms, dice),)
        for broker in targets:
            for _ in range(2 * TICK_MS * limit // 1000 // size_bytes + 1):
                if not brokers.admit(broker, size_bytes):
                    break
                number += 1
        brokers.tick()
    lag_ms = trip_ms + CHARGE_INTERVAL_MS + TICK_MS
    allowed_s = 10 * 1.015 + 2 * lag_ms / 1000
    assert brokers.most_over_10_s() <= allowed_s * limit + 3 * size_bytes
    # What was admitted into debt before is paid in the time that is looked at.
    begin_ms = length_ms * 3 // 20
    got, due = brokers.between(begin_ms, length_ms), limit * (length_ms - begin_ms) / 1000
    assert got >= 0.98 * due - 3 * size_bytes


def test_one_brokers_small_requests_keep_its_part_beside_large_ones_elsewhere() -> None:
    brokers = Brokers(3, 6 * MB, 2)
    small = 0
    while brokers.now_ms < 20_000:
        brokers.admit(0, MB)
        brokers.admit(1, MB)
        while brokers.admit(2, 10_000):
            small += 10_000
        brokers.tick()
    assert small / 20 >= 0.9 * 2 * MB
    assert brokers.most_over_10_s() <= 1.05 * 60 * MB + 2 * MB


def test_the_first_request_of_an_idle_broker_waits_no_longer_than_its_part_says() -> None:
    brokers = Brokers(3, 5 * MB, 2)
    while brokers.now_ms < 10_000:
        brokers.admit(0, 100_000)
        brokers.tick()
    assert brokers.admit(1, 900_000)
    assert brokers.limiters[1].debt_ms(brokers.now_ms) <= 900_000 / (5 * MB / 3) * 1000


@pytest.mark.parametrize("brokers_silent", [(0,), (0, 1)])
def test_brokers_without_answers_have_their_parts_alone(brokers_silent: tuple[int, ...]) -> None:
    brokers = Brokers(3, 3 * MB, 2)
    brokers.silent = brokers_silent
    while brokers.now_ms < 20_000:
        for broker in range(3):
            brokers.admit(broker, 20_000)
        brokers.tick()
    assert brokers.most_over_10_s() <= 1.05 * 30 * MB + MB
