"""A request that overtakes one which waits at the leader, and answers that bring the same twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.engine.replication.stepped_world import SteppedWorld, batches, fetched, line

SESSION = 4711


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SteppedWorld]:
    world = SteppedWorld(tmp_path)
    yield world
    world.fetchers.close()
    world.table.close()


def test_a_partition_followed_while_a_request_waits_overtakes_it(world: SteppedWorld) -> None:
    world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    assert len(link.sent) == 1
    world.pass_ms(0)
    assert [line.partition for topic in link.sent[1][3].topics for line in topic.partitions] == [1]


def test_records_answered_twice_because_a_request_was_overtaken_are_appended_once(world: SteppedWorld) -> None:
    partition = world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    assert partition.log_end_offset == 3
    assert world.error_of(0) == ""
    assert link.asked() == [(0, 5, 3, 5)]


def test_where_the_leader_stands_counts_also_beside_records_that_are_there_already(world: SteppedWorld) -> None:
    """REP-8: the leader takes it for told, and says it again only when it is another."""
    partition = world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)
    link.answer(fetched(line(0, batches(0, 3), high_watermark=0), session_id=SESSION))
    link.answer(fetched(line(0, batches(0, 3), high_watermark=3, start_offset=1), session_id=SESSION))
    assert (partition.log_end_offset, partition.high_watermark, partition.log_start_offset) == (3, 3, 1)
