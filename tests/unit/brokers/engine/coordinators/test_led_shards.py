"""The part of an instance's limits that a broker may grant."""

from __future__ import annotations

from brokers.engine.coordinators.led_shards import LedShards


def led(partitions: int, *shards: str) -> LedShards[str]:
    result: LedShards[str] = LedShards(lambda: partitions)
    for shard in shards:
        result.add(shard)
    return result


def test_a_broker_grants_the_share_of_the_partitions_that_it_leads() -> None:
    assert led(4, "a").share_of(100) == 25
    assert led(4, "a", "b", "c", "d").share_of(100) == 100
    assert led(3, "a").share_of(100) == 34


def test_the_share_is_never_less_than_the_floor() -> None:
    assert led(50, "a").share_of(100, floor=10) == 10
    assert led(50, "a").share_of(10) == 1


def test_a_topic_that_is_not_there_yet_or_is_gone_divides_nothing() -> None:
    assert led(0, "a").share_of(100) == 100
    assert led(1, "a", "b").share_of(100) == 100


def test_totals_are_of_the_shards_that_are_led_now() -> None:
    shards = led(2, "a", "bb")
    assert shards.total(len) == 3
    shards.discard("bb")
    shards.discard("never")
    assert shards.total(len) == 1
