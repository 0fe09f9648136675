"""One follower and its leader, response by response: appends, truncations, retries and their times."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from brokers.engine.replication.fetcher import RESPONSE_MS_MAX
from brokers.engine.storage import checkpoints

from .stepped_world import LEADER, ME, MY_EPOCH, TOPIC_ID, SteppedWorld, batches, broker_info, fetched, line

SESSION = 4711


def offsets(index: int, offset: int) -> ListOffsetsResponse:
    response = ListOffsetsPartitionResponse(partition_index=index, error_code=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=[response])])


def test_fetched_records_are_appended_and_the_next_request_reports_it(world: SteppedWorld) -> None:
    """REP-6, REP-7, REP-8."""
    partition = world.follow()
    link = world.come_up()
    assert link.asked() == [(0, 5, 0, -1)]
    request = link.request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 2_097_152)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (ME, MY_EPOCH)
    assert request.topics[0].partitions[0].partition_max_bytes == 1_048_576
    link.answer(fetched(line(records=batches(0, 3, 2), high_watermark=4)))
    assert (partition.log_end_offset, partition.high_watermark) == (5, 4)
    assert link.asked() == [(0, 5, 5, 5)]
    link.answer(fetched(line(high_watermark=5)))
    assert partition.high_watermark == 5
    partition.check()


def test_the_first_request_does_not_wait_for_records(world: SteppedWorld) -> None:
    world.follow()
    world.pass_ms(0)
    world.link.owner.on_up()
    assert world.link.request.max_wait_ms == 0


def test_in_a_session_requests_name_only_changed_partitions(world: SteppedWorld) -> None:
    """WIRE-30."""
    for index in range(3):
        world.follow(index)
    link = world.come_up(SESSION)
    assert (link.request.session_id, link.request.session_epoch, link.asked()) == (SESSION, 1, [])
    link.answer(fetched(line(1, batches(0, 4)), session_id=SESSION))
    assert (link.request.session_epoch, link.asked()) == (2, [(1, 5, 4, 5)])
    world.fetchers.unfollow("topic", 2)
    link.answer(fetched(session_id=SESSION))
    assert link.asked() == []
    assert [(topic.topic_id, topic.partitions) for topic in link.request.forgotten_topics_data] == [(TOPIC_ID, [2])]


def test_a_session_that_the_leader_forgot_is_replaced(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up(SESSION)
    link.answer(fetched(error=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
    assert link.is_closed
    again = world.come_up(SESSION + 1)
    assert again is not link
    assert (again.request.session_id, again.request.session_epoch) == (SESSION + 1, 1)


def test_a_diverged_log_is_truncated_to_the_common_prefix(world: SteppedWorld) -> None:
    """REP-15."""
    partition = world.follow(leader_epoch=7)
    link = world.come_up()
    data = batches(0, 3, leader_epoch=5) + batches(3, 4, leader_epoch=6)
    link.answer(fetched(line(records=data, high_watermark=3)))
    assert partition.log_end_offset == 7
    link.answer(fetched(line(diverging=(5, 3), high_watermark=3)))
    assert (partition.log_end_offset, partition.last_fetched_epoch) == (3, 5)
    assert link.asked() == [(0, 7, 3, 5)]


def test_a_log_beyond_the_leaders_end_is_truncated_to_it(world: SteppedWorld) -> None:
    """REP-9."""
    partition = world.follow()
    link = world.come_up()
    link.answer(fetched(line(records=batches(0, 3, 2))))
    link.answer(fetched(line(error=int(ErrorCode.OFFSET_OUT_OF_RANGE))))
    assert link.sent[0][0] == ApiKey.LIST_OFFSETS
    question = link.request.topics[0].partitions[0]
    assert (link.request.replica_id, question.timestamp, question.current_leader_epoch) == (ME, -1, 5)
    link.answer(offsets(0, 3))
    assert partition.log_end_offset == 3
    assert link.asked() == [(0, 5, 3, 5)]


def test_a_log_that_ends_before_the_leaders_start_is_restarted(world: SteppedWorld) -> None:
    """REP-9."""
    partition = world.follow()
    link = world.come_up()
    link.answer(fetched(line(records=batches(0, 3))))
    link.answer(fetched(line(error=int(ErrorCode.OFFSET_OUT_OF_RANGE))))
    link.answer(offsets(0, 90))
    assert link.request.topics[0].partitions[0].timestamp == -2
    link.answer(offsets(0, 50))
    assert (partition.log_start_offset, partition.log_end_offset) == (50, 50)
    link.answer(fetched(line(records=batches(50, 1), high_watermark=51, start_offset=50)))
    assert partition.high_watermark == 51


def test_a_log_that_ends_within_the_leaders_first_batch_is_restarted(world: SteppedWorld) -> None:
    """LOG-46: the logs diverged below the leader's log start, so the leader does not know where."""
    partition = world.follow()
    link = world.come_up()
    link.answer(fetched(line(records=batches(0, 4, leader_epoch=4))))
    within = line(records=batches(3, 3, leader_epoch=5), high_watermark=6, start_offset=4)
    link.answer(fetched(within))
    while link.sent[0][0] != ApiKey.LIST_OFFSETS:
        link.answer(fetched())
        world.pass_ms(100)
    link.answer(offsets(0, 6))
    link.answer(offsets(0, 4))
    assert link.asked() == [(0, 5, 4, -1)]
    link.answer(fetched(within))
    assert (partition.log_start_offset, partition.log_end_offset, partition.high_watermark) == (4, 6, 6)


def test_an_offset_that_the_leader_has_again_is_fetched_later(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    link.answer(fetched(line(error=int(ErrorCode.OFFSET_OUT_OF_RANGE))))
    link.answer(offsets(0, 4))
    link.answer(offsets(0, 0))
    assert link.sent == []
    world.pass_ms(25)
    assert link.asked() == [(0, 5, 0, -1)]


def test_errors_delay_one_partition_longer_each_time_and_no_others(world: SteppedWorld) -> None:
    world.follow(0)
    world.follow(1)
    link = world.come_up(SESSION)
    waited = []
    for _ in range(8):
        link.answer(fetched(line(0, error=int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), session_id=SESSION))
        assert world.error_of(0) == "NOT_LEADER_OR_FOLLOWER"
        began_ms = world.clock.passed_ms
        assert (link.asked(), link.request.forgotten_topics_data[0].partitions) == ([], [0])
        link.answer(fetched(line(1, batches(len(waited), 1)), session_id=SESSION))
        while not any(line[0] == 0 for _, _, _, request in link.sent for line in _lines(request)):
            world.pass_ms(1)
        waited.append(world.clock.passed_ms - began_ms)
        link.answer(fetched(session_id=SESSION))
    assert waited == [25, 50, 100, 200, 400, 800, 1_000, 1_000]
    link.answer(fetched(line(0, batches(0, 1)), session_id=SESSION))
    assert world.error_of(0) == ""


def _lines(request: object) -> list[tuple[int]]:
    return [(line.partition,) for topic in request.topics for line in topic.partitions]  # type: ignore[attr-defined]


def test_a_new_image_makes_a_delayed_partition_be_fetched_at_once(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    for _ in range(6):
        link.answer(fetched(line(error=int(ErrorCode.FENCED_LEADER_EPOCH))))
        world.pass_ms(1_000)
    link.answer(fetched(line(error=int(ErrorCode.FENCED_LEADER_EPOCH))))
    world.follow(leader_epoch=6)
    world.pass_ms(0)
    assert link.asked() == [(0, 6, 0, -1)]


def test_a_response_of_an_earlier_leader_epoch_is_not_appended(world: SteppedWorld) -> None:
    partition = world.follow()
    link = world.come_up()
    world.follow(leader_epoch=6)
    link.answer(fetched(line(records=batches(0, 3))))
    assert partition.log_end_offset == 0
    assert link.asked() == [(0, 6, 0, -1)]


def test_nothing_is_appended_after_unfollow(world: SteppedWorld) -> None:
    partition = world.follow()
    link = world.come_up()
    world.fetchers.unfollow("topic", 0)
    link.answer(fetched(line(records=batches(0, 3))))
    assert partition.log_end_offset == 0
    assert link.sent == []


def test_a_damaged_batch_is_not_stored_and_fetched_again(world: SteppedWorld) -> None:
    partition = world.follow()
    link = world.come_up()
    damaged = bytearray(batches(0, 3))
    damaged[-1] ^= 1
    link.answer(fetched(line(records=bytes(damaged))))
    assert partition.log_end_offset == 0
    assert "checksum" in world.error_of()
    world.pass_ms(25)
    link.answer(fetched(line(records=batches(0, 3))))
    assert (partition.log_end_offset, world.error_of()) == (3, "")


def test_a_lost_connection_is_reestablished_soon_and_then_less_often(world: SteppedWorld) -> None:
    world.follow()
    world.pass_ms(0)
    began = []
    for _ in range(8):
        count = len(world.links)
        world.link.owner.on_down("connection refused")
        assert world.error_of() == "connection refused"
        failed_ms = world.clock.passed_ms
        while len(world.links) == count:
            world.pass_ms(1)
        began.append(world.clock.passed_ms - failed_ms)
    assert began == [25, 50, 100, 200, 400, 800, 1_000, 1_000]
    world.come_up()
    assert world.error_of() == ""


def test_a_leader_with_a_new_address_is_contacted_there_at_once(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    world.fetchers.on_brokers({})
    assert link.is_closed
    assert world.error_of() == "the broker is not alive"
    world.pass_ms(5_000)
    assert len(world.links) == 1
    world.fetchers.on_brokers({LEADER: broker_info(LEADER, epoch=10)})
    world.pass_ms(0)
    assert world.link.broker.epoch == 10


def test_the_connection_to_a_silent_leader_is_closed(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    world.pass_ms(RESPONSE_MS_MAX)
    world.fetchers.check()
    assert not link.is_closed
    world.pass_ms(1)
    world.fetchers.check()
    assert link.is_closed
    world.pass_ms(25)
    assert len(world.links) == 2


def test_a_leader_that_accepts_and_never_authenticates_is_retried(world: SteppedWorld) -> None:
    """Like a stopped process, whose kernel accepts the connection."""
    world.follow()
    world.pass_ms(0)
    silent = world.link
    world.pass_ms(RESPONSE_MS_MAX)
    world.fetchers.check()
    assert not silent.is_closed
    world.pass_ms(1)
    world.fetchers.check()
    assert silent.is_closed
    assert "no answer" in world.error_of()
    world.pass_ms(1_000)
    assert world.link is not silent
    world.link.owner.on_up()
    world.fetchers.check()
    assert not world.link.is_closed


def test_another_leader_takes_over_with_the_next_image(world: SteppedWorld) -> None:
    partition = world.follow()
    link = world.come_up()
    world.fetchers.on_brokers({LEADER: broker_info(LEADER), 3: broker_info(3)})
    world.follow(leader_epoch=6, leader=3)
    link.answer(fetched(line(records=batches(0, 3))))
    assert partition.log_end_offset == 0
    assert world.come_up().broker.id == 3
    assert world.link.asked() == [(0, 6, 0, -1)]


def test_a_partition_without_a_leader_reports_that(world: SteppedWorld) -> None:
    world.follow(leader=-1)
    world.pass_ms(1_000)
    assert (world.links, world.error_of()) == ([], "the partition has no leader")


def test_a_malformed_response_closes_the_connection(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    link.owner.on_frame(memoryview(bytearray(b"\0\0\0\2nonsense")), 4, 12)
    assert link.is_closed
    assert "response" in world.error_of()


def test_the_lag_counts_committed_records_missing_in_this_log(world: SteppedWorld) -> None:
    world.follow()
    link = world.come_up()
    assert next(world.fetchers.states()).lag == -1
    link.answer(fetched(line(records=batches(0, 3), high_watermark=10)))
    state = next(world.fetchers.states())
    assert (state.lag, state.leader, state.end_offset, state.last_acked_ms) == (7, LEADER, 3, world.clock.now_ms())


def test_a_throttled_partition_is_delayed_and_the_others_are_not(tmp_path: Path) -> None:
    """QUO-61."""
    records = batches(0, 20)
    world = SteppedWorld(tmp_path, limit_bytes_per_s=len(records) // 2)
    throttled = world.follow(0, follower_replication_throttled_replicas=f"0:{ME}")
    other = world.follow(1, follower_replication_throttled_replicas=f"0:{ME}")
    link = world.come_up(SESSION)
    link.answer(fetched(line(1, batches(0, 20)), session_id=SESSION))
    assert link.asked() == [(1, 5, 20, 5)]
    link.answer(fetched(line(0, records), session_id=SESSION))
    assert (throttled.log_end_offset, other.log_end_offset) == (20, 20)
    assert link.asked() == []
    assert link.request.forgotten_topics_data[0].partitions == [0]
    world.pass_ms(1_990)
    link.answer(fetched(session_id=SESSION))
    assert link.asked() == []
    world.pass_ms(20)
    assert [line[0] for _, _, _, request in link.sent for line in _lines(request)] == [0]
    world.fetchers.close()
    world.table.close()


def test_holes_are_recorded_before_the_leader_learns_of_records_behind_them(tmp_path: Path) -> None:
    """LOG-36: otherwise a crash would truncate records for which this replica counts as in sync by then."""
    world = SteppedWorld(tmp_path)
    partition = world.follow(0, cleanup_policy="compact")
    link = world.come_up(SESSION)
    link.answer(fetched(line(0, batches(0, 3)), session_id=SESSION))
    flush = world.table.flusher.plan_flush()
    flush.run()
    flush.finish()
    link.answer(fetched(line(0, batches(7, 3)), session_id=SESSION))
    assert link.asked() == [(0, 5, 10, 5)]
    assert partition.log.recovery_point == 3
    root = partition.log.root
    assert checkpoints.read_offsets(root / checkpoints.RECOVERY_POINTS, root) == {}
    world.fetchers.close()
    world.table.close()


def test_a_fetch_of_a_throttled_partition_is_limited_to_half_a_second(tmp_path: Path) -> None:
    """QUO-61: so that a low rate holds over seconds, too; replicas that are in sync or not throttled fetch as usual."""
    world = SteppedWorld(tmp_path, limit_bytes_per_s=20_000)
    world.follow(0, follower_replication_throttled_replicas=f"0:{ME}")
    world.follow(1, follower_replication_throttled_replicas=f"0:{ME}")
    arrived = world.follow(2, follower_replication_throttled_replicas="*")
    arrived.isr = (LEADER, ME)
    world.pass_ms(0)
    world.link.owner.on_up()
    topics = world.link.request.topics
    asked_for = {line.partition: line.partition_max_bytes for topic in topics for line in topic.partitions}
    assert asked_for == {0: 10_000, 1: 1 << 20, 2: 1 << 20}
    world.fetchers.close()
    world.table.close()


def test_an_in_sync_replica_is_charged_and_never_delayed(tmp_path: Path) -> None:
    """QUO-61: clients wait for it; a replica that has caught up must not fall behind while others are still copied."""
    records = batches(0, 20)
    world = SteppedWorld(tmp_path, limit_bytes_per_s=len(records) // 2)
    arrived = world.follow(0, follower_replication_throttled_replicas="*")
    copied = world.follow(1, follower_replication_throttled_replicas="*")
    arrived.isr = (LEADER, ME)
    link = world.come_up(SESSION)
    link.answer(fetched(line(0, records), session_id=SESSION))
    assert link.asked() == [(0, 5, 20, 5)]
    link.answer(fetched(line(1, records), session_id=SESSION))
    assert (arrived.log_end_offset, copied.log_end_offset) == (20, 20)
    assert link.request.forgotten_topics_data[0].partitions == [1]
    world.pass_ms(1_990)
    link.answer(fetched(line(0, batches(20, 5)), session_id=SESSION))
    assert (arrived.log_end_offset, link.asked()) == (25, [(0, 5, 25, 5)])
    world.fetchers.close()
    world.table.close()
