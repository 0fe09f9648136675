"""A topic's limit over the brokers that lead its partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.throttling import charging, topic_quotas
from brokers.engine.throttling.charging import PRODUCER_BYTE_RATE, UNUSED_MS_MAX, Limiter
from brokers.engine.throttling.topic_quotas import TopicQuotas


def asked(
    quotas: TopicQuotas, leaders: dict[int, int], *, limit_bps: int = 1_000, broker: int = 1, topic: str = "orders"
) -> Limiter | None:
    """Return the limiter of a topic that is a new object each time."""
    return quotas.limiter(topic, PRODUCER_BYTE_RATE, limit_bps, object(), lambda: leaders, broker, 0)


@given(
    leaders=st.dictionaries(st.integers(1, 9), st.integers(0, 50), min_size=1),
    limit_bps=st.integers(100, 10**12),
)
def test_the_parts_of_all_brokers_are_the_limit(leaders: dict[int, int], limit_bps: int) -> None:
    limiters = [asked(TopicQuotas(), leaders, limit_bps=limit_bps, broker=broker) for broker in leaders]

    parts = [limiter.limit_per_s for limiter in limiters if limiter is not None]
    assert sum(parts) == (limit_bps if any(leaders.values()) else 0)
    assert len(parts) == sum(count > 0 for count in leaders.values())


def test_leaders_are_counted_once_for_each_version_of_a_topic() -> None:
    quotas, topic, counted = TopicQuotas(), object(), []

    def leaders() -> dict[int, int]:
        counted.append(1)
        return {1: 1}

    found = [quotas.limiter("orders", PRODUCER_BYTE_RATE, 10, topic, leaders, 1, 0) for _ in range(3)]

    assert counted == [1]
    assert found[0] is found[1] is found[2]


def test_samples_stay_when_limit_and_leaders_change() -> None:
    quotas = TopicQuotas()
    before = asked(quotas, {1: 1})
    assert before is not None
    before.rate.record(500, 0)

    assert asked(quotas, {2: 1}) is None, "nothing of the topic is led here"
    after = asked(quotas, {1: 1, 2: 1}, limit_bps=4_000)

    assert after is before
    assert (after.limit_per_s, after.rate.total) == (2_000, 500)


def test_topics_that_come_and_go_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_quotas, "LIMITERS_PER_INSTANCE_MAX", 50)
    quotas = TopicQuotas()

    for number in range(200):
        asked(quotas, {1: 1}, topic=f"t{number}")

    assert len(quotas) == 50
    assert quotas.drop_unused(UNUSED_MS_MAX) == 50
    assert charging.LIMITERS_PER_INSTANCE_MAX == 10_000
