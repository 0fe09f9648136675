"""A follower reports only log start offsets that survive a crash (LOG-46)."""

from __future__ import annotations

import pytest

from tests.unit.brokers.engine.replication.stepped_world import HandLink, SteppedWorld, batches, fetched, line

SESSION = 7


@pytest.fixture
def world(world: SteppedWorld) -> SteppedWorld:
    world.starts_to_keep = []
    return world


def sent(link: HandLink) -> list[int]:
    """Returns the log start offsets in the latest request."""
    return [line.log_start_offset for topic in link.sent[-1][3].topics for line in topic.partitions]


def sent_start(world: SteppedWorld, start_offset: int) -> HandLink:
    """Makes the leader delete the records below `start_offset`, of six records in two batches."""
    link = world.come_up(SESSION)
    link.answer(fetched(line(records=batches(0, 3, 3), high_watermark=6), session_id=SESSION))
    link.answer(fetched(line(high_watermark=6, start_offset=start_offset), session_id=SESSION))
    return link


def test_a_log_start_offset_is_reported_once_it_is_on_disk(world: SteppedWorld) -> None:
    partition = world.follow()
    link = sent_start(world, 4)
    assert (partition.log_start_offset, sent(link)) == (4, [0])

    world.starts_are_kept()
    world.pass_ms(0)
    assert len(link.sent) == 2, "the request that waits at the leader is overtaken"
    assert sent(link) == [4]


def test_a_log_start_offset_that_advances_during_a_write_is_written_next(world: SteppedWorld) -> None:
    world.follow()
    link = sent_start(world, 2)
    (first,) = world.starts_to_keep or ()
    link.answer(fetched(line(high_watermark=6, start_offset=5), session_id=SESSION))
    world.starts_to_keep = []
    first()
    assert len(world.starts_to_keep) == 1
    world.starts_are_kept()
    world.pass_ms(0)
    assert sent(link) == [5]


def test_a_pending_log_start_offset_is_reported_to_a_new_leader(world: SteppedWorld) -> None:
    world.follow()
    link = sent_start(world, 4)
    world.follow(leader_epoch=6)
    world.pass_ms(0)
    assert sent(link) == [0]
    world.starts_are_kept()
    link.answer(fetched(session_id=SESSION))
    world.pass_ms(0)
    assert sent(link) == [4]


def test_a_log_start_within_a_batch_is_reported_once_it_is_on_disk(world: SteppedWorld) -> None:
    """Its file begins with the batch, its log in the middle of it."""
    partition = world.follow()
    link = world.come_up(SESSION)
    world.table.truncate_fully_and_start_at(partition, 4, world.clock.now_ms())
    link.answer(fetched(line(records=batches(3, 3), high_watermark=6, start_offset=4), session_id=SESSION))
    assert (partition.log_start_offset, partition.log.segments[0].base_offset, sent(link)) == (4, 3, [3])
    world.starts_are_kept()
    world.pass_ms(0)
    assert sent(link) == [4]


def test_a_log_start_advanced_by_retention_is_reported_without_appends(world: SteppedWorld) -> None:
    """REP-23: its log starts where the leader's does, and it may be in sync again."""
    partition = world.follow(retention_bytes="1")
    link = world.come_up(SESSION)
    link.answer(fetched(line(records=batches(0, 3), high_watermark=3), session_id=SESSION))
    partition.log.roll(world.clock.now_ms())
    link.answer(fetched(line(records=batches(3, 3), high_watermark=6), session_id=SESSION))
    assert len(link.sent) == 1

    world.table.maintain(world.clock.now_ms())
    world.starts_are_kept()
    world.pass_ms(0)

    assert partition.log_start_offset == 3
    assert len(link.sent) == 2, "the request that waits at the leader is overtaken"
    assert sent(link) == [3]


def test_nothing_is_written_for_a_log_that_was_deleted_meanwhile(world: SteppedWorld) -> None:
    """No file names its log start offset any more, so it would be written for ever."""
    world.follow()
    sent_start(world, 4)
    world.fetchers.unfollow("topic", 0)
    world.table.delete("topic", 0, now_ms=world.clock.now_ms())

    world.starts_are_kept()

    assert world.starts_to_keep == []


def test_a_recreated_replica_reports_its_own_log_start_offset(world: SteppedWorld) -> None:
    world.follow()
    link = sent_start(world, 4)
    world.fetchers.unfollow("topic", 0)
    world.table.delete("topic", 0, now_ms=world.clock.now_ms())
    world.follow(1)
    partition = world.follow()
    world.pass_ms(0)
    for _ in range(2):
        link.answer(fetched(session_id=SESSION))
    link.answer(fetched(line(records=batches(0, 3, 3), high_watermark=6, start_offset=5), session_id=SESSION))
    assert partition.log_start_offset == 5

    for _ in range(3):
        world.starts_are_kept()
    world.pass_ms(0)

    assert sent(link)[-1] == 5
