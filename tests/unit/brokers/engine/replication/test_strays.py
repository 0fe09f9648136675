"""Logs are not deleted because ZooKeeper was lost or a document is unreadable (CTL-20, QUO-75)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.replication.roles import Roles

ORDERS, BILLS, USAGE = "ins-aaaaaaaa.orders", "ins-aaaaaaaa.bills", "__usage"
EMPTY = ClusterImage("c")
HELD = b"1" * 16
MADE_AGAIN = b"2" * 16


class Nobody:
    def follow(self, partition: Partition) -> None: ...
    def unfollow(self, topic: str, index: int) -> None: ...
    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None: ...


def _topic(name: str, topic_id: bytes = HELD) -> TopicImage:
    partition = PartitionImage(0, (1,), leader=1, leader_epoch=0, isr=(1,), version=0)
    return TopicImage(name, name, None, topic_id, (partition,), {})


def _image(*topics: TopicImage) -> ClusterImage:
    return EMPTY.with_changes(ImageDelta(topics={topic.name: topic for topic in topics}))


@pytest.fixture
def table(tmp_path: Path) -> PartitionTable:
    """A table with the logs of three topics."""
    made = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    made.recover(0)
    for name in (ORDERS, BILLS, USAGE):
        made.become_leader(name, 0, HELD, 0, {}, now_ms=0)
    return made


def _roles(table: PartitionTable) -> Roles:
    return Roles(broker_id=1, table=table, fetchers=Nobody(), now_ms=lambda: 0, monotonic_ms=lambda: 0)


def _held(table: PartitionTable) -> set[str]:
    return {partition.topic for partition in table}


def test_an_internal_topic_recreated_in_an_empty_tree_does_not_get_the_existing_log(
    table: PartitionTable,
) -> None:
    """ZooKeeper lost its data; a controller was elected and created `__usage` before this broker started."""
    _roles(table).on_image(EMPTY, _image(_topic(USAGE, MADE_AGAIN)))

    assert _held(table) == {ORDERS, BILLS, USAGE}


def test_a_running_broker_keeps_its_logs_when_the_tree_is_lost(table: PartitionTable) -> None:
    """Its session ended with the tree; a new broker created the paths that the next session needs."""
    roles, before = _roles(table), _image(_topic(ORDERS), _topic(BILLS), _topic(USAGE))
    roles.on_image(EMPTY, before)

    roles.on_image(before, _image(_topic(USAGE, MADE_AGAIN)))

    assert _held(table) == {ORDERS, BILLS, USAGE}


def _aside(directory: Path) -> list[str]:
    return sorted(path.name.split(".", 2)[0] for path in directory.glob("*-stray"))


def test_a_topic_recreated_in_a_lost_tree_does_not_delete_the_log_of_its_name(
    table: PartitionTable, tmp_path: Path
) -> None:
    """The brokers create their internal topics at once, and so may producers with automatic topic creation."""
    roles, before = _roles(table), _image(_topic(ORDERS), _topic(BILLS), _topic(USAGE))
    roles.on_image(EMPTY, before)

    lost = _image(_topic(USAGE, MADE_AGAIN))
    roles.on_image(before, lost)
    later = _image(_topic(USAGE, MADE_AGAIN), _topic(ORDERS, MADE_AGAIN))
    roles.on_image(lost, later)

    assert _held(table) == {ORDERS, BILLS, USAGE}
    assert len(_aside(tmp_path)) == 2
    assert not list(tmp_path.glob("*-delete"))
    made = table.get(ORDERS, 0)
    assert made is not None
    assert (made.topic_id, made.is_leader) == (MADE_AGAIN, True)


def test_a_topic_recreated_elsewhere_in_a_lost_tree_does_not_delete_the_log_of_its_name(table: PartitionTable) -> None:
    roles, before = _roles(table), _image(_topic(ORDERS), _topic(USAGE))
    roles.on_image(EMPTY, before)
    elsewhere = _topic(ORDERS, MADE_AGAIN)
    elsewhere = replace(elsewhere, partitions=(replace(elsewhere.partitions[0], replicas=(2,), leader=2, isr=(2,)),))

    lost = _image(elsewhere, _topic(USAGE, MADE_AGAIN))
    roles.on_image(before, lost)
    roles.on_image(lost, _image(_topic(USAGE, MADE_AGAIN)))

    assert ORDERS in _held(table)


def test_a_restored_tree_gets_its_logs_back(table: PartitionTable) -> None:
    roles, before = _roles(table), _image(_topic(ORDERS), _topic(BILLS))
    roles.on_image(EMPTY, before)
    roles.on_image(before, EMPTY)
    orders = table.get(ORDERS, 0)
    assert orders is not None
    assert not orders.is_leader

    roles.on_image(EMPTY, before)

    assert table.get(ORDERS, 0) is orders
    assert orders.is_leader


def test_topics_being_deleted_are_deleted_even_if_there_are_no_others(table: PartitionTable) -> None:
    roles, before = _roles(table), _image(replace(_topic(ORDERS), deleting=True), _topic(BILLS))
    roles.on_image(EMPTY, before)

    roles.on_image(before, EMPTY)

    assert _held(table) == set()


def test_the_log_of_a_topic_that_is_being_deleted_at_start_is_deleted_with_it(
    table: PartitionTable, tmp_path: Path
) -> None:
    """Also if the next image has the recreated topic of that name, which is on other brokers (seed 10365 of the
    simulator).
    """
    table.close()
    started = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    started.recover(0)
    roles, before = _roles(started), _image(replace(_topic(ORDERS), deleting=True), _topic(BILLS), _topic(USAGE))
    roles.on_image(EMPTY, before)
    again = _topic(ORDERS, MADE_AGAIN)
    elsewhere = replace(again, partitions=(replace(again.partitions[0], replicas=(2,), leader=2, isr=(2,)),))

    roles.on_image(before, _image(elsewhere, _topic(BILLS), _topic(USAGE)))

    assert _held(started) == {BILLS, USAGE}


def test_the_log_of_an_earlier_topic_is_deleted_if_its_successor_is_being_deleted_at_start(
    table: PartitionTable, tmp_path: Path
) -> None:
    """No later image would show it: the next topic of that name may be on other brokers (seed 30627)."""
    table.close()
    started = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    started.recover(0)
    next_one = replace(_topic(ORDERS, MADE_AGAIN), deleting=True)

    _roles(started).on_image(EMPTY, _image(next_one, _topic(BILLS), _topic(USAGE)))

    assert _held(started) == {BILLS, USAGE}


def test_the_log_of_a_topic_with_unreadable_documents_stays(table: PartitionTable) -> None:
    """At the next start after its config was edited by hand; on all its replicas, one restart after the other."""
    _roles(table).on_image(EMPTY, replace(_image(_topic(USAGE)), unreadable_topics=frozenset({ORDERS})))

    assert _held(table) == {ORDERS, USAGE}
