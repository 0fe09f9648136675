"""A topic with the name of a deleted one waits until the checkpoint files no longer name that one (LOG-36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokers.engine.cluster.image import ClusterImage, ImageDelta
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.replication.roles import Roles
from tests.unit.brokers.engine.replication.test_roles import NAME, Followed, _follow, _led, _topic, table

__all__ = ["table"]


class Renamed:
    """A topic that was recreated with its name, and the pending steps of its creation."""

    def __init__(self, table: PartitionTable, *, is_seen_deleted: bool) -> None:
        self.table, self.wanted, self.woken = table, 0, 0
        self.roles = Roles(
            broker_id=1,
            table=table,
            fetchers=Followed(),
            now_ms=lambda: 0,
            monotonic_ms=lambda: 0,
            wake=self._wake,
            request_checkpoint=self._want,
        )
        empty = ClusterImage("c")
        first = empty.with_changes(ImageDelta(topics={NAME: _topic(1, 1)}))
        self.image = empty.with_changes(
            ImageDelta(topics={NAME: replace(_topic(1, 1), topic_id=b"2" * 16), "other": _topic(1, name="other")})
        )
        _follow(self.roles, empty, first, *([empty] if is_seen_deleted else []), self.image)

    def _wake(self) -> None:
        self.woken += 1

    def _want(self) -> None:
        self.wanted += 1

    def checkpoint(self) -> bool:
        batch = self.table.flusher.plan_checkpoints()
        assert batch is not None
        batch.run()
        batch.finish()
        return batch.is_complete


@pytest.mark.parametrize("is_seen_deleted", [True, False])
def test_only_a_recreated_topic_waits_for_the_checkpoints(table: PartitionTable, is_seen_deleted: bool) -> None:
    """LOG-36: after a crash the new log would get the old recovery point; writing the files takes milliseconds."""
    renamed = Renamed(table, is_seen_deleted=is_seen_deleted)

    assert [partition.topic for partition in table] == ["other"]
    assert renamed.wanted
    assert not renamed.roles.continue_changes()

    renamed.roles.on_checkpoint(is_written=renamed.checkpoint())
    assert renamed.woken == 1
    assert not renamed.roles.continue_changes()
    assert {(held.topic, held.index, held.topic_id) for held in table if held.topic == NAME} == {
        (NAME, 0, b"2" * 16), (NAME, 1, b"2" * 16),
    }  # fmt: skip
    assert not table.flusher.outdated


def test_a_topic_deleted_during_a_checkpoint_waits_for_the_next_one(table: PartitionTable) -> None:
    renamed = Renamed(table, is_seen_deleted=True)
    batch = table.flusher.plan_checkpoints()
    assert batch is not None
    batch.run()
    table.delete("other", 0, now_ms=0)
    renamed.roles.on_image(
        renamed.image,
        renamed.image.with_changes(ImageDelta(topics={"other": replace(_topic(1, name="other"), topic_id=b"3" * 16)})),
    )
    batch.finish()
    wanted = renamed.wanted

    renamed.roles.on_checkpoint(is_written=batch.is_complete)

    assert table.flusher.outdated == {("other", 0)}
    assert renamed.wanted == wanted + 1
    assert not renamed.roles.continue_changes()
    assert table.get("other", 0) is None


def test_failing_checkpoints_do_not_prevent_creations(table: PartitionTable) -> None:
    renamed = Renamed(table, is_seen_deleted=True)

    renamed.roles.on_checkpoint(is_written=False)

    assert not renamed.roles.continue_changes()
    assert sorted(_led(table)) == [0, 0, 1]


def test_partitions_waiting_for_checkpoints_are_suspected_with_the_others(table: PartitionTable) -> None:
    renamed = Renamed(table, is_seen_deleted=True)

    renamed.roles.suspect_leaderships()
    renamed.roles.on_checkpoint(is_written=renamed.checkpoint())

    assert table.get(NAME, 0) is None


def test_a_flush_removes_deleted_partitions_from_the_checkpoint_files(table: PartitionTable) -> None:
    for number in range(100):
        table.become_leader(f"t{number}", 0, b"1" * 16, 0, {}, now_ms=0)
        table.delete(f"t{number}", 0, now_ms=0)
    assert len(table.flusher.outdated) == 100

    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()

    assert not table.flusher.outdated
