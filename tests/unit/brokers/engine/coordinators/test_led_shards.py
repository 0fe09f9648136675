"""The part of an instance's limits, and of its tenant's, that a broker may grant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.coordinator_limits import TENANT_INSTANCES_MAX
from brokers.engine.coordinators.led_shards import LedShards

TENANTS = {"a1": ("a1", "a2", "a3"), "a2": ("a1", "a2", "a3"), "a3": ("a1", "a2", "a3"), "b1": ("b1",)}
SHARDS = "xyz"


def led(partitions: int, *shards: str) -> LedShards[str]:
    result: LedShards[str] = LedShards(lambda: partitions, TENANTS.__getitem__)
    for shard in shards:
        result.add(shard)
    return result


def test_a_broker_grants_the_share_of_the_partitions_that_it_leads() -> None:
    assert led(4, "a").local_limit(100) == 25
    assert led(4, "a", "b", "c", "d").local_limit(100) == 100
    assert led(3, "a").local_limit(100) == 34


def test_the_share_is_never_less_than_the_floor() -> None:
    assert led(50, "a").local_limit(100, floor=10) == 10
    assert led(50, "a").local_limit(10) == 1


def test_a_topic_without_partitions_divides_nothing() -> None:
    assert led(0, "a").local_limit(100) == 100
    assert led(1, "a", "b").local_limit(100) == 100


def test_usage_is_counted_over_the_shards_that_are_led_now() -> None:
    shards = led(2, "x", "y")
    shards.charge("x", "b1", 1, 10)
    shards.charge("y", "b1", 2, 20)
    shards.charge("never", "b1", 4, 40)
    assert (shards.used("b1", 0), shards.used("b1", 1)) == (3, 30)
    shards.discard("y")
    shards.discard("never")
    shards.charge("y", "b1", -2, -20)
    assert (shards.used("b1", 0), shards.used("b1", 1)) == (1, 10)


def test_an_instance_alone_has_its_own_limit() -> None:
    shards = led(1, "x")
    shards.charge("x", "b1", 70)
    assert shards.remaining("b1", 0, 100) == 30
    assert shards.remaining("b1", 0, 100, times=2) == 130


def test_the_instances_of_a_tenant_together_have_a_limit() -> None:
    shards = led(1, "x")
    limit = 100
    for instance_id in ("a1", "a2"):
        shards.charge("x", instance_id, TENANT_INSTANCES_MAX * limit // 2)
    assert shards.used("a3", 0) == 0
    assert shards.remaining("a3", 0, limit) == 0
    assert shards.remaining("b1", 0, limit) == limit
    shards.charge("x", "a1", -30)
    assert shards.remaining("a3", 0, limit) == 30


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(SHARDS), st.sampled_from(sorted(TENANTS)), st.integers(0, 5), st.integers(0, 50)),
            st.sampled_from(SHARDS),
        )
    )
)
def test_usage_of_an_instance_is_the_sum_over_its_shards(
    steps: list[tuple[str, str, int, int] | str],
) -> None:
    """A charge, or a shard that is taken back if this broker leads it, and otherwise led empty."""
    shards = led(3)
    usage: dict[str, dict[str, list[int]]] = {}
    for step in steps:
        if isinstance(step, tuple):
            shard, instance_id, *more = step
            shards.charge(shard, instance_id, *more)
            if shard in usage:
                amounts = usage[shard].setdefault(instance_id, [0, 0])
                amounts[:] = [amount + added for amount, added in zip(amounts, more, strict=True)]
        elif step in usage:
            shards.discard(step)
            del usage[step]
        else:
            shards.add(step)
            usage[step] = {}
    for instance_id in TENANTS:
        for kind in (0, 1):
            expected = sum(by_instance.get(instance_id, [0, 0])[kind] for by_instance in usage.values())
            assert shards.used(instance_id, kind) == expected
