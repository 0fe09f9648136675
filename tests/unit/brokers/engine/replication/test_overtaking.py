"""A fetch that overtakes one waiting at the leader, and responses with the same records twice."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.replication.stepped_world import SteppedWorld, batches, fetched, line
from tests.unit.brokers.engine.replication.test_fetcher import offsets

SESSION = 4711


def test_a_partition_followed_while_a_request_waits_overtakes_it(world: SteppedWorld) -> None:
    world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    assert len(link.sent) == 1
    world.pass_ms(0)
    assert [line.partition for topic in link.sent[1][3].topics for line in topic.partitions] == [1]


def test_records_returned_twice_after_overtaking_are_appended_once(world: SteppedWorld) -> None:
    partition = world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    assert partition.log_end_offset == 3
    assert world.error_of(0) == ""
    named = [line.fetch_offset for _, _, _, request in link.sent for line in request.topics[0].partitions]
    assert named == [3, 3]


def test_a_new_log_end_is_reported_at_once_during_a_waiting_request(world: SteppedWorld) -> None:
    """Otherwise producers that wait for these records would wait until the other request times out."""
    world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)

    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))

    named = [(line.partition, line.fetch_offset) for topic in link.sent[-1][3].topics for line in topic.partitions]
    assert (len(link.sent), named) == (2, [(0, 3)])


def test_an_empty_response_causes_no_second_request(world: SteppedWorld) -> None:
    world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)

    link.answer(fetched(session_id=SESSION))

    assert len(link.sent) == 1


def test_offsets_of_the_leader_apply_also_with_known_records(world: SteppedWorld) -> None:
    """REP-8: the leader counts it as sent, and sends it again only when it changes."""
    partition = world.follow(0)
    link = world.come_up(SESSION)
    world.follow(1)
    world.pass_ms(0)
    link.answer(fetched(line(0, batches(0, 3), high_watermark=0), session_id=SESSION))
    link.answer(fetched(line(0, batches(0, 3), high_watermark=3, start_offset=1), session_id=SESSION))
    assert (partition.log_end_offset, partition.high_watermark, partition.log_start_offset) == (3, 3, 1)


def test_a_late_response_from_before_a_reelection_is_ignored(world: SteppedWorld) -> None:
    """Another broker led in between, and made it truncate what it sent."""
    partition = world.follow(0, leader_epoch=5)
    link = world.come_up(SESSION)
    world.follow(0, leader_epoch=7)
    world.pass_ms(0)
    assert len(link.sent) == 2
    link.answer(fetched(line(0, batches(0, 3, leader_epoch=5), high_watermark=3), session_id=SESSION))
    assert (partition.log_end_offset, partition.high_watermark) == (0, 0)
    link.answer(fetched(line(0, batches(0, 2, leader_epoch=7), high_watermark=1), session_id=SESSION))
    assert (partition.log_end_offset, partition.last_fetched_epoch, partition.high_watermark) == (2, 7, 1)


def test_a_late_offset_response_truncates_nothing_in_a_later_epoch(world: SteppedWorld) -> None:
    partition = world.follow(0, leader_epoch=5)
    link = world.come_up(SESSION)
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    link.answer(fetched(line(0, error=int(ErrorCode.OFFSET_OUT_OF_RANGE)), session_id=SESSION))
    assert [sent[0] for sent in link.sent] == [ApiKey.LIST_OFFSETS]
    world.follow(0, leader_epoch=7)
    world.pass_ms(0)
    assert [sent[0] for sent in link.sent] == [ApiKey.LIST_OFFSETS, ApiKey.FETCH]
    link.answer(offsets(0, 1))
    assert partition.log_end_offset == 3
