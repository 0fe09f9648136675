"""Fetch sessions of followers on a leader (WIRE-30, REP-10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes

NOW_MS = 1_700_000_000_000
TOPIC_ID = b"t" * 16
KEY = (TOPIC_ID, 0)
REPLICA = 2


def test_a_recreated_partition_is_looked_up_again(tmp_path: Path) -> None:
    """REP-32: a reassignment removed the replica from this broker, and the next one brought it back as the leader."""
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    session = FollowerSession(1, REPLICA, 7)
    before = table.become_follower(
        "t", 0, TOPIC_ID, 5, {}, now_ms=NOW_MS, role=PartitionRole((1, REPLICA), (REPLICA,), REPLICA)
    )
    assert not session.update_position(KEY, (0, 6, 0, -1, 0, 1_000), before, NOW_MS)
    line = session.partitions[KEY]
    assert line.code == error_codes.UNKNOWN_LEADER_EPOCH
    assert line.partition is None, "a refused partition is looked up again"

    table.delete("t", 0, now_ms=NOW_MS)
    after = table.become_leader("t", 0, TOPIC_ID, 6, {}, now_ms=NOW_MS, role=PartitionRole((1, REPLICA), (1,)))
    session.update_position(KEY, (0, 6, 0, -1, 0, 1_000), after, NOW_MS)
    assert (line.code, line.partition) == (0, after)
    table.close()


MANY, FEW = "ins-aaaaaaaa.many", "ins-bbbbbbbb.few"


@pytest.fixture
def session(tmp_path: Path) -> FollowerSession:
    """A follower without any records of twenty partitions of one instance and two of another."""
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    session = FollowerSession(1, REPLICA, 7)
    for topic, count in ((MANY, 20), (FEW, 2)):
        for index in range(count):
            led = table.become_leader(
                topic, index, topic.encode()[:16], 5, {}, now_ms=NOW_MS, role=PartitionRole((1, REPLICA), (1,))
            )
            session.update_position((topic.encode()[:16], index), (index, 5, 0, -1, 0, 1_000), led, NOW_MS)
            line = session.partitions[topic.encode()[:16], index]
            session.mark_ready(line)
    return session


def taken(session: FollowerSession, count: int) -> list[str]:
    lines = [session.pop_ready() for _ in range(count)]
    partitions = [line.partition for line in lines if line is not None]
    return [partition.topic for partition in partitions if isinstance(partition, Partition)]


def test_an_instance_with_many_partitions_does_not_delay_the_replication_of_others(session: FollowerSession) -> None:
    assert taken(session, 5) == [MANY, FEW, MANY, FEW, MANY]
    assert taken(session, 100) == [MANY] * 17
    assert not session.has_ready


def test_returned_partitions_come_first_and_in_order(session: FollowerSession) -> None:
    lines = [line for line in (session.pop_ready() for _ in range(3)) if line is not None]
    session.requeue(lines)
    again = [session.pop_ready() for _ in range(4)]
    assert again[0] is lines[0]
    assert {id(line) for line in again} >= {id(line) for line in lines}
    assert [line.key[1] for line in again if line is not None and line.owner == "ins-aaaaaaaa"] == [0, 1]
