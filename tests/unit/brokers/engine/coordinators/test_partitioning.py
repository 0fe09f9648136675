"""GRP-1: partitions of group ids and transactional ids, with vectors of Kafka's hash."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators.limits import GROUP_ID_BYTES_MAX, TRANSACTIONAL_ID_BYTES_MAX
from brokers.engine.coordinators.partitioning import (
    CACHED_LENGTH_MAX,
    HASHED_LENGTH_MAX,
    cached_partition_of,
    java_hash,
    partition_of,
)


@pytest.mark.parametrize(
    ("id", "partition"),
    [("test-group", 12), ("g1", 42), ("my-group", 12), ("", 0), ("组", 2), ("polygenelubricants", 0)],
)
def test_an_id_lives_in_the_partition_kafka_puts_it_in(id: str, partition: int) -> None:
    assert partition_of(id, 50) == partition


def test_no_more_of_an_id_is_hashed_than_one_that_is_kept_can_have() -> None:
    """A request may name a thousand ids of thirty kilobytes."""
    assert max(GROUP_ID_BYTES_MAX, TRANSACTIONAL_ID_BYTES_MAX) <= HASHED_LENGTH_MAX
    kept = "x" * HASHED_LENGTH_MAX
    assert partition_of(kept + "y", 50) == partition_of(kept, 50) == abs(java_hash(kept)) % 50


def test_ids_too_long_for_any_group_are_not_remembered() -> None:
    """One FindCoordinator request may name thousands of them."""
    before = cached_partition_of.cache_info().currsize
    for number in range(100):
        assert 0 <= partition_of(f"{number}".rjust(CACHED_LENGTH_MAX + 1, "x"), 50) < 50
    assert cached_partition_of.cache_info().currsize == before
