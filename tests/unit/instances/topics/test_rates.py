"""Rates of topics from two samples of cumulative counters."""

from __future__ import annotations

from django.core.cache import cache

from instances.topics.rates import CounterSample, rates_between, sample_rates

T0 = 1_000_000


def test_a_rate_is_the_difference_over_the_span_summed_over_brokers() -> None:
    before = {1: CounterSample(T0, 5, {"a": (100, 0)}), 2: CounterSample(T0, 5, {"a": (10, 10)})}
    now = {
        1: CounterSample(T0 + 10_000, 5, {"a": (1_100, 50)}),
        2: CounterSample(T0 + 10_000, 5, {"a": (10, 110), "b": (20, 0)}),
    }
    rates = rates_between(before, now)
    assert rates.over_s == 10
    assert rates.of("a") == (100.0, 15.0)
    assert rates.of("b") == (2.0, 0.0)
    assert rates.of("c") == (0.0, 0.0)


def test_a_broker_that_restarted_counts_from_its_start() -> None:
    before = {1: CounterSample(T0, 5, {"a": (5_000, 0)})}
    now = {1: CounterSample(T0 + 20_000, T0 + 10_000, {"a": (300, 0)})}
    assert rates_between(before, now).of("a") == (30.0, 0.0)


def test_without_an_earlier_look_or_too_soon_nothing_is_known() -> None:
    sample = CounterSample(T0, 5, {"a": (1, 1)})
    assert rates_between({}, {1: sample}).of("a") == (None, None)
    assert rates_between({1: sample}, {1: CounterSample(T0 + 500, 5, {"a": (9, 9)})}).of("a") == (None, None)
    assert rates_between({1: sample}, {1: CounterSample(T0 + 3_600_000, 5, {"a": (9, 9)})}).over_s is None


def test_counters_that_run_backwards_are_no_traffic() -> None:
    before, now = {1: CounterSample(T0, 5, {"a": (9, 9)})}, {1: CounterSample(T0 + 10_000, 5, {"a": (5, 9)})}
    assert rates_between(before, now).of("a") == (0.0, 0.0)


def test_a_broker_that_did_not_answer_one_sample_is_in_later_rates() -> None:
    """The sample without it would be cached like a complete one, and its traffic be missing for half a minute."""
    cache.clear()

    def sample(at_s: int, *numbers: int) -> dict[int, CounterSample]:
        return {number: CounterSample(T0 + at_s * 1_000, 5, {"a": (at_s * 100, 0)}) for number in numbers}

    for at_s, numbers in ((0, (1, 2)), (15, (1,)), (36, (1, 2))):
        sample_rates("key", sample(at_s, *numbers))
    assert sample_rates("key", {}).of("a") == (None, None)
    assert sample_rates("key", sample(40, 1, 2)).of("a") == (200.0, 0.0)
    sample_rates("key", sample(400, 1))
    assert sample_rates("key", sample(410, 1, 2)).of("a") == (100.0, 0.0), "the counters of the other are too old"
