"""From image to partitions: led, resigned, deleted, and strays of topics deleted meanwhile (REP-26, CTL-20)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.replication.roles import CREATED_AT_ONCE_MAX, Roles
from brokers.engine.scheduling.turn_queue import TURN_MS_MAX
from tests.testkit.descriptors import exhausted_descriptors

NAME = "ins-aaaaaaaa.orders"


def _topic(*leaders: int, name: str = NAME, topic_id: bytes = b"1" * 16, epoch: int = 0) -> TopicImage:
    partitions = tuple(
        PartitionImage(index, (1,), leader=leader, leader_epoch=epoch, isr=(1,), version=0)
        for index, leader in enumerate(leaders)
    )
    return TopicImage(name, name, None, topic_id, partitions, {})


@pytest.fixture
def table(tmp_path: Path) -> PartitionTable:
    made = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    made.recover(0)
    return made


class Followed(dict[tuple[str, int], tuple[int, int]]):
    """Records the leader and leader epoch of each followed partition."""

    def follow(self, partition: Partition) -> None:
        self[partition.topic, partition.index] = (partition.leader, partition.leader_epoch)

    def unfollow(self, topic: str, index: int) -> None:
        self.pop((topic, index), None)

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        pass


def _roles(table: PartitionTable, followed: Followed | None = None) -> Roles:
    fetchers = Followed() if followed is None else followed
    return Roles(broker_id=1, table=table, fetchers=fetchers, now_ms=lambda: 0, monotonic_ms=lambda: 0)


def _follow(roles: Roles, *images: ClusterImage) -> None:
    before = ClusterImage("c")
    for image in images:
        roles.on_image(before, image)
        before = image


def _led(table: PartitionTable) -> list[int]:
    return sorted(partition.index for partition in table if partition.is_leader)


def test_only_partitions_of_this_broker_are_led(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    both = empty.with_changes(ImageDelta(topics={NAME: _topic(1, 2)}))
    roles = _roles(table)

    _follow(roles, empty, both)

    assert _led(table) == [0]
    assert roles.leaders == 1


def test_a_leadership_that_moves_away_is_resigned_and_the_log_stays(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    mine = empty.with_changes(ImageDelta(topics={NAME: _topic(1)}))
    nobodys = mine.with_changes(ImageDelta(topics={NAME: _topic(-1)}))
    again = nobodys.with_changes(ImageDelta(topics={NAME: _topic(1, epoch=4)}))
    roles = _roles(table)

    _follow(roles, empty, mine, nobodys)
    assert _led(table) == []
    assert table.get(NAME, 0) is not None
    roles.on_image(nobodys, again)

    partition = table.get(NAME, 0)
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch) == (True, 4)


def test_the_partitions_of_a_deleted_topic_are_deleted(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    there = empty.with_changes(ImageDelta(topics={NAME: _topic(1, 1)}))

    _follow(_roles(table), empty, there, there.with_changes(ImageDelta(topics={NAME: None})))

    assert len(table) == 0


def test_a_recreated_topic_starts_empty(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    old = empty.with_changes(ImageDelta(topics={NAME: _topic(1)}))
    _follow(_roles(table), empty, old, old.with_changes(ImageDelta(topics={NAME: _topic(1, topic_id=b"2" * 16)})))

    partition = table.get(NAME, 0)
    assert partition is not None
    assert partition.topic_id == b"2" * 16


def test_a_topic_recreated_with_fewer_partitions_leaves_none_of_the_others(table: PartitionTable) -> None:
    """No image without the topic was read."""
    empty, followed = ClusterImage("c"), Followed()
    old = empty.with_changes(ImageDelta(topics={NAME: _topic(1, 1, 2)}))
    _follow(
        _roles(table, followed), empty, old, old.with_changes(ImageDelta(topics={NAME: _topic(1, topic_id=b"2" * 16)}))
    )

    assert [partition.index for partition in table] == [0]
    assert not followed


def test_changed_settings_reach_the_partition(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    before = empty.with_changes(ImageDelta(topics={NAME: _topic(1)}))
    after = before.with_changes(ImageDelta(topics={NAME: replace(_topic(1), config={"max.message.bytes": "77"})}))

    _follow(_roles(table), empty, before, after)

    partition = table.get(NAME, 0)
    assert partition is not None
    assert partition.config.batch_rules.batch_bytes_max == 77


def test_logs_of_topics_deleted_meanwhile_are_deleted_at_start(table: PartitionTable) -> None:
    for name in (NAME, "ins-aaaaaaaa.gone"):
        table.become_leader(name, 0, b"1" * 16, 0, {}, now_ms=0)

    _roles(table).on_image(ClusterImage("c"), ClusterImage("c").with_changes(ImageDelta(topics={NAME: _topic(1)})))

    assert [partition.topic for partition in table] == [NAME]


def test_nothing_is_deleted_at_start_if_the_image_has_none_of_the_logs(table: PartitionTable) -> None:
    """An empty tree means a wrong tree, not that all topics are gone."""
    table.become_leader(NAME, 0, b"1" * 16, 0, {}, now_ms=0)

    _roles(table).on_image(
        ClusterImage("c"), ClusterImage("c").with_changes(ImageDelta(topics={"__usage": _topic(1, name="__usage")}))
    )

    assert table.get(NAME, 0) is not None


def test_a_leadership_of_an_earlier_incarnation_waits_for_the_controller(table: PartitionTable) -> None:
    """CTL-10: a replica that may have lost records leads only in a leader epoch of this incarnation; a single replica
    leads at once.
    """
    shared = PartitionImage(0, (1, 2), 1, 3, (1, 2), 1, 5, written_at=90, isr_epochs=(50, 60))
    alone = PartitionImage(1, (1,), 1, 3, (1,), 1, 5, written_at=90, isr_epochs=(50,))
    topic = TopicImage(NAME, NAME, None, b"1" * 16, (shared, alone), {})
    living = ClusterImage("c").with_changes(ImageDelta(topics={NAME: topic}, brokers={1: _broker(50)}))
    roles = _roles(table)
    _follow(roles, ClusterImage("c"), living)
    assert _led(table) == [0, 1]

    reborn = living.with_changes(ImageDelta(brokers={1: _broker(95)}))
    roles.on_image(living, reborn)
    assert _led(table) == [1]

    given = replace(shared, leader_epoch=4, isr=(1,), isr_epochs=(95,), version=6)
    roles.on_image(reborn, reborn.with_changes(ImageDelta(topics={NAME: replace(topic, partitions=(given, alone))})))
    assert _led(table) == [0, 1]


def test_a_log_waiting_for_the_controller_is_deleted_if_its_topic_is_recreated_elsewhere(tmp_path: Path) -> None:
    """The broker came back, and the topic was deleted before the controller gave it a new leadership."""
    before = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    before.recover(0)
    image = ClusterImage("c").with_changes(ImageDelta(brokers={1: _broker(9)}))
    mine = image.with_changes(ImageDelta(topics={NAME: _written_before((1, 2), leader=1)}))
    before.become_leader(NAME, 0, b"1" * 16, 0, {}, now_ms=0)
    before.close()
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    table.recover(0)
    roles = _roles(table)

    _follow(roles, mine)
    assert table.get(NAME, 0) is not None
    assert _led(table) == []
    again = mine.with_changes(ImageDelta(topics={NAME: _written_before((2, 3), leader=2, topic_id=b"2" * 16)}))
    roles.on_image(mine, again)

    assert len(table) == 0


def _written_before(replicas: tuple[int, ...], *, leader: int, topic_id: bytes = b"1" * 16) -> TopicImage:
    """Returns a topic of one partition whose state was written before any broker of the tests registered."""
    partition = PartitionImage(0, replicas, leader=leader, leader_epoch=1, isr=replicas, version=0, written_at=1)
    return TopicImage(NAME, NAME, None, topic_id, (partition,), {})


def test_leaderships_that_may_have_moved_are_suspended_until_the_cluster_is_read_again(table: PartitionTable) -> None:
    """CTL-4: after a suspension a broker cannot know whether it was replaced. Single replicas are still led."""
    shared = PartitionImage(0, (1, 2), 1, 3, (1, 2), 1, 5)
    alone = PartitionImage(1, (1,), 1, 3, (1,), 1, 5)
    moved = PartitionImage(2, (1, 2), 1, 3, (1, 2), 1, 5)
    topic = TopicImage(NAME, NAME, None, b"1" * 16, (shared, alone, moved), {})
    image = ClusterImage("c").with_changes(ImageDelta(topics={NAME: topic}))
    followed = Followed()
    roles = _roles(table, followed)
    _follow(roles, ClusterImage("c"), image)

    roles.suspect_leaderships()
    assert _led(table) == [1]
    late = replace(topic, partitions=(replace(shared, isr=(1,), version=6), alone, moved))
    news = image.with_changes(ImageDelta(topics={NAME: late}))
    roles.on_image(image, news)
    assert _led(table) == [1]

    elsewhere = replace(late, partitions=(*late.partitions[:2], replace(moved, leader=2, leader_epoch=4, version=6)))
    read_anew = news.with_changes(ImageDelta(topics={NAME: elsewhere}))
    roles.on_image(news, read_anew)
    roles.confirm_leadership(read_anew)
    assert _led(table) == [0, 1]
    assert followed == {(NAME, 2): (2, 4)}
    assert roles.leaders == 2


def _broker(epoch: int) -> BrokerInfo:
    return BrokerInfo(1, "127.0.0.1", 24001, 24051, None, epoch)


def _replicated(leader: int, *, epoch: int = 0, replicas: tuple[int, ...] = (1, 2, 3), version: int = 0) -> TopicImage:
    partition = PartitionImage(0, replicas, leader=leader, leader_epoch=epoch, isr=replicas, version=version)
    return TopicImage(NAME, NAME, None, b"1" * 16, (partition,), {})


def test_a_partition_is_followed_until_it_is_led_here(table: PartitionTable) -> None:
    """CTL-12."""
    empty = ClusterImage("c")
    followed = Followed()
    roles = _roles(table, followed)
    theirs = empty.with_changes(ImageDelta(topics={NAME: _replicated(2)}))
    moved = theirs.with_changes(ImageDelta(topics={NAME: _replicated(3, epoch=1, version=1)}))
    mine = moved.with_changes(ImageDelta(topics={NAME: _replicated(1, epoch=2, version=2)}))

    _follow(roles, empty, theirs)
    assert (followed, _led(table)) == ({(NAME, 0): (2, 0)}, [])
    roles.on_image(theirs, moved)
    assert followed == {(NAME, 0): (3, 1)}
    roles.on_image(moved, mine)

    assert (followed, _led(table)) == ({}, [0])


def test_a_partition_without_a_leader_is_not_followed(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    followed = Followed()
    theirs = empty.with_changes(ImageDelta(topics={NAME: _replicated(2)}))

    _follow(
        _roles(table, followed),
        empty,
        theirs,
        theirs.with_changes(ImageDelta(topics={NAME: _replicated(-1, epoch=1, version=1)})),
    )

    assert followed == {}
    partition = table.get(NAME, 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (-1, 1)


def test_a_replica_that_moves_elsewhere_is_deleted_here(table: PartitionTable) -> None:
    """REP-32."""
    empty = ClusterImage("c")
    followed = Followed()
    theirs = empty.with_changes(ImageDelta(topics={NAME: _replicated(2)}))

    _follow(
        _roles(table, followed),
        empty,
        theirs,
        theirs.with_changes(ImageDelta(topics={NAME: _replicated(2, replicas=(2, 3, 4), version=1)})),
    )

    assert (followed, table.get(NAME, 0)) == ({}, None)


def test_a_replica_that_moved_elsewhere_meanwhile_is_deleted_at_start(table: PartitionTable) -> None:
    table.become_leader(NAME, 0, b"1" * 16, 0, {}, now_ms=0)

    _follow(
        _roles(table),
        ClusterImage("c"),
        ClusterImage("c").with_changes(ImageDelta(topics={NAME: _replicated(2, replicas=(2, 3))})),
    )

    assert table.get(NAME, 0) is None


def test_a_topic_that_is_being_deleted_is_neither_led_nor_followed(table: PartitionTable) -> None:
    """CTL-20."""
    empty = ClusterImage("c")
    for leader in (1, 2):
        followed = Followed()
        there = empty.with_changes(ImageDelta(topics={NAME: _replicated(leader)}))
        going = there.with_changes(ImageDelta(topics={NAME: replace(_replicated(leader), deleting=True)}))

        _follow(_roles(table, followed), empty, there, going)

        assert (followed, _led(table)) == ({}, [])


class Crowd:
    """A tenant's topic with many partitions, most of which are created later; creating one takes `log_ms`."""

    def __init__(self, table: PartitionTable, partitions: int, log_ms: float = 0) -> None:
        self.woken = 0
        self.table = table
        self.followed = Followed()
        self.roles = Roles(
            broker_id=1,
            table=table,
            fetchers=self.followed,
            now_ms=lambda: 0,
            monotonic_ms=lambda: int(log_ms * len(table)),
            wake=self.wake,
        )
        self.topic = replace(_topic(*[1] * partitions), instance_id="ins-aaaaaaaa")
        self.empty = ClusterImage("c")
        self.image = self.empty.with_changes(ImageDelta(topics={NAME: self.topic}))
        _follow(self.roles, self.empty, self.image)

    def wake(self) -> None:
        self.woken += 1


def test_very_many_partitions_are_created_in_turns(table: PartitionTable) -> None:
    crowd = Crowd(table, 2 * CREATED_AT_ONCE_MAX + 3)
    assert (len(_led(table)), crowd.woken) == (CREATED_AT_ONCE_MAX, 1)

    assert crowd.roles.continue_changes()
    assert len(_led(table)) == 2 * CREATED_AT_ONCE_MAX
    assert not crowd.roles.continue_changes()
    assert _led(table) == list(range(2 * CREATED_AT_ONCE_MAX + 3))
    assert crowd.roles.leaders == len(_led(table))


def test_few_partitions_are_created_at_once(table: PartitionTable) -> None:
    assert Crowd(table, CREATED_AT_ONCE_MAX).woken == 0


def test_internal_topics_are_created_in_turns_too(table: PartitionTable) -> None:
    own = ClusterImage("c").with_changes(ImageDelta(topics={"__own": _topic(*[1] * 60, name="__own")}))
    crowd = Crowd(table, 1)

    crowd.roles.on_image(ClusterImage("c"), own)

    assert len([partition for partition in table if partition.topic == "__own"]) == CREATED_AT_ONCE_MAX
    assert crowd.woken == 1
    while crowd.roles.continue_changes():
        pass
    assert len([partition for partition in table if partition.topic == "__own"]) == 60


def test_a_turn_ends_after_its_time_however_few_were_created(table: PartitionTable) -> None:
    crowd = Crowd(table, CREATED_AT_ONCE_MAX, log_ms=TURN_MS_MAX / 2)

    assert len(_led(table)) == 2
    crowd.roles.continue_changes()
    assert len(_led(table)) == 4


def test_pending_partitions_are_created_according_to_the_latest_image(table: PartitionTable) -> None:
    crowd = Crowd(table, CREATED_AT_ONCE_MAX + 2)
    moved = list(crowd.topic.partitions)
    moved[-1] = replace(moved[-1], replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=7)
    moved[-2] = replace(moved[-2], leader_epoch=3)
    crowd.roles.on_image(
        crowd.image, crowd.image.with_changes(ImageDelta(topics={NAME: replace(crowd.topic, partitions=tuple(moved))}))
    )

    crowd.roles.continue_changes()

    made = table.get(NAME, CREATED_AT_ONCE_MAX)
    assert made is not None
    assert made.leader_epoch == 3
    assert crowd.followed == {(NAME, CREATED_AT_ONCE_MAX + 1): (2, 7)}


def test_partitions_deleted_meanwhile_are_not_created(table: PartitionTable) -> None:
    crowd = Crowd(table, CREATED_AT_ONCE_MAX + 2)

    crowd.roles.on_image(crowd.image, crowd.image.with_changes(ImageDelta(topics={NAME: None})))

    assert not crowd.roles.continue_changes()
    assert list(table) == []


def test_very_many_partitions_are_resigned_at_once_and_deleted_in_turns(table: PartitionTable) -> None:
    """Each deletion is a rename: a topic of a thousand partitions would block the event loop for 30 ms."""
    ticks = itertools.count()
    roles = Roles(
        broker_id=1,
        table=table,
        fetchers=Followed(),
        now_ms=lambda: 0,
        monotonic_ms=lambda: next(ticks),
        wake=lambda: None,
    )
    empty = ClusterImage("c")
    there = empty.with_changes(ImageDelta(topics={NAME: _topic(*[1] * 20)}))
    roles.on_image(empty, there)
    while roles.continue_changes():
        pass

    roles.on_image(there, empty)

    left = len(list(table))
    assert 20 - TURN_MS_MAX <= left < 20
    assert (_led(table), roles.leaders) == ([], 0)
    assert roles.continue_changes()
    assert len(list(table)) < left
    while roles.continue_changes():
        pass
    assert list(table) == []


def test_a_topic_recreated_before_the_old_logs_are_deleted_keeps_its_own_logs(table: PartitionTable) -> None:
    ticks = itertools.count()
    roles = Roles(
        broker_id=1,
        table=table,
        fetchers=Followed(),
        now_ms=lambda: 0,
        monotonic_ms=lambda: next(ticks),
        wake=lambda: None,
    )
    empty = ClusterImage("c")
    there = empty.with_changes(ImageDelta(topics={NAME: _topic(*[1] * 20)}))
    again = empty.with_changes(ImageDelta(topics={NAME: replace(_topic(*[1] * 20), topic_id=b"2" * 16)}))
    _follow(roles, empty, there)
    while roles.continue_changes():
        pass
    roles.on_image(there, empty)
    roles.on_image(empty, again)

    while roles.continue_changes():
        pass

    assert _led(table) == list(range(20))
    assert {partition.topic_id for partition in table} == {b"2" * 16}


def test_pending_partitions_are_suspected_with_the_others(table: PartitionTable) -> None:
    """CTL-4: another broker may lead it by now."""
    crowd = Crowd(table, CREATED_AT_ONCE_MAX + 2)

    crowd.roles.suspect_leaderships()

    assert not crowd.roles.continue_changes()
    assert len(list(table)) == CREATED_AT_ONCE_MAX
    crowd.roles.confirm_leadership(crowd.image)
    assert len(_led(table)) == CREATED_AT_ONCE_MAX + 2


def test_a_partition_without_a_descriptor_is_led_once_there_is_one(table: PartitionTable) -> None:
    empty = ClusterImage("c")
    roles = _roles(table)
    with exhausted_descriptors():
        _follow(roles, empty, empty.with_changes(ImageDelta(topics={NAME: _topic(1)})))
        roles.retry_failed()
        assert _led(table) == []
    roles.retry_failed()

    assert _led(table) == [0]
    assert roles.leaders == 1
    assert not table.offline_directories
