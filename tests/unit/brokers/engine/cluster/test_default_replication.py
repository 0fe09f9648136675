"""Default replication factor of topics."""

from __future__ import annotations

import pytest

from brokers.contract.documents import InstanceDocument, InstanceSettings
from brokers.engine.cluster import topic_plans


@pytest.mark.parametrize(
    ("brokers", "leaving", "chosen", "factor"),
    [
        (1, 0, -1, 1),
        (2, 0, -1, 2),
        (3, 0, -1, 3),
        (5, 0, -1, 3),
        (3, 1, -1, 2),
        (1, 1, -1, 1),
        (3, 0, 1, 1),
        (1, 0, 3, 3),
    ],
)
def test_the_default_is_one_replica_per_broker_of_the_instance_and_at_most_three(
    brokers: int, leaving: int, chosen: int, factor: int
) -> None:
    document = InstanceDocument(
        generation=1, produce_bps=1, consume_bps=1, capacity_bytes=1,
        ports={number: 19_000 + number for number in range(brokers)}, leaving=tuple(range(leaving)),
        settings=InstanceSettings(default_replication_factor=chosen),
    )  # fmt: skip
    assert topic_plans.default_replication_factor(document) == factor
