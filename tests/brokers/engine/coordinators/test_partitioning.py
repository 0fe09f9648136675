"""GRP-1: the vectors of Kafka's own hash."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators.partitioning import partition_of


@pytest.mark.parametrize(
    ("id", "partition"),
    [("test-group", 12), ("g1", 42), ("my-group", 12), ("", 0), ("组", 2), ("polygenelubricants", 0)],
)
def test_an_id_lives_in_the_partition_kafka_puts_it_in(id: str, partition: int) -> None:
    assert partition_of(id, 50) == partition
