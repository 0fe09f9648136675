"""Fixtures of partitions that this broker leads, alone or with a follower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.partitions.transactional import NOW_MS, TOPIC_ID


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PartitionTable]:
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c", defaults=SMALL_SEGMENTS))
    table.recover(NOW_MS)
    yield table
    for partition in table:
        partition.check()
    table.close()


@pytest.fixture
def partition(table: PartitionTable) -> Partition:
    return table.become_leader("ins-a.orders", 0, TOPIC_ID, 3, {}, now_ms=NOW_MS)


@pytest.fixture
def replicated(table: PartitionTable) -> Partition:
    """Partition with broker 2 as an in-sync follower: records that it has not fetched are not committed."""
    return table.become_leader("ins-a.orders", 0, TOPIC_ID, 3, {}, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2)))
