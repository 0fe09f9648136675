"""Fail-over at every step of a scripted day (TST-7): the next controller goes on, whichever write the first one fails
before.

The controller is stopped in front of its k-th transaction, for every k the day has, in three ways: its process dies,
its session ends while it lives, and it is paused past its session and then resumed (CTL-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from brokers.contract import paths
from brokers.engine.cluster import errors
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Check, Operation
from tests.testkit.cluster import Member, is_complete
from tests.testkit.fake_store import FakeEnsemble

INSTANCE = "ins-aaaaaaaa"
FAILURES = ("dies", "expires", "pauses")
STEPS_MAX = 40


class Stopped(Exception):
    """Raised instead of the write that the controller does not reach."""


class Day:
    """Three brokers and a tenant; broker 1 is the first controller, and its `stop_before`-th guarded write never
    happens.
    """

    def __init__(self, failure: str, stop_before: int) -> None:
        self.ensemble = FakeEnsemble()
        self.members = {id: Member(self.ensemble.connect(), broker_id=id) for id in (1, 2, 3)}
        self.failure = failure
        self.stop_before = stop_before
        self.writes = 0
        self.happened = False
        self.late_writes = 0

    async def play(self) -> None:
        first, witness = self.members[1], self.members[2]
        first.tree.before_commit = self.interfere
        for member in self.members.values():
            await member.start()
        await witness.publish_instance(INSTANCE, [1, 2, 3])
        store = witness.store
        await store.create_topic(witness.image, TopicSpec(INSTANCE, "kept", partitions=6, replication_factor=1))
        await store.create_topic(witness.image, TopicSpec(INSTANCE, "dropped", partitions=4, replication_factor=1))
        await witness.until(lambda image: {f"{INSTANCE}.kept", f"{INSTANCE}.dropped"} <= set(image.topics))
        await self.complete()
        self.ensemble.end(self.members[3].tree)
        await self.members[3].crash()
        await store.create_partitions(witness.image, TopicGrowth(INSTANCE, "kept", total=8))
        await store.delete_topic(witness.image, instance_id=INSTANCE, name="dropped")
        await witness.until(lambda image: 3 not in image.brokers and f"{INSTANCE}.dropped" not in image.topics)
        await self.complete()
        self.members[3] = Member(self.ensemble.connect(), broker_id=3)
        await self.members[3].start()
        await self.complete()

    async def complete(self) -> None:
        await self.members[2].until(lambda image: is_complete(image) and leaders_are_right(image))

    def interfere(self, operations: Sequence[Operation]) -> None:
        first = self.members[1]
        guarded = isinstance(operations[0], Check) and operations[0].path == paths.CONTROLLER_EPOCH
        if self.happened or not guarded:
            return
        self.writes += 1
        if self.writes != self.stop_before:
            return
        self.happened = True
        if self.failure == "dies":
            self.ensemble.end(first.tree)
            asyncio.get_running_loop().create_task(first.crash())
            raise errors.StoreUnavailable("dead")
        if self.failure == "expires":
            self.ensemble.expire(first.tree)
            return
        # Paused: the session ends and another controller is elected before this very write arrives.
        self.ensemble.expire(first.tree)
        epoch = self.ensemble.nodes[paths.CONTROLLER_EPOCH]
        epoch.version += 1
        epoch.data = str(int(epoch.data) + 1).encode()

    async def close(self) -> None:
        for member in self.members.values():
            if member.tree.available:
                await member.stop()
            else:
                await member.crash()
                for task in list(member.session._tasks):
                    task.cancel()
        assert [member.fatal for member in self.members.values()] == [[], [], []]


def leaders_are_right(image: ClusterImage) -> bool:
    """Return whether every partition (of one replica) is led by its replica exactly if that is alive, with the ISR
    unchanged.
    """
    for topic in image.topics.values():
        for partition in topic.partitions:
            alone = partition.replicas[0]
            if partition.version is None and alone not in image.brokers:
                # The broker died before the first state was written; the state is written when the broker is back.
                continue
            alive = alone in image.brokers and image.brokers[alone].epoch <= partition.written_at
            if partition.isr != (alone,) or partition.leader != (alone if alive else -1):
                return False
    return True


@pytest.mark.parametrize("failure", FAILURES)
async def test_the_day_ends_the_same_wherever_the_controller_fails(failure: str) -> None:
    """CTL-3: the next controller reads everything, elects leaders where there are none, and goes on with deletions."""
    stop_before = 0
    while True:
        stop_before += 1
        assert stop_before < STEPS_MAX
        day = Day(failure, stop_before)
        await day.play()
        image = day.members[2].image
        assert set(image.brokers) == ({2, 3} if failure == "dies" and day.happened else {1, 2, 3})
        assert [len(image.topics[f"{INSTANCE}.kept"].partitions), f"{INSTANCE}.dropped" in image.topics] == [8, False]
        assert not any("dropped" in path for path in day.ensemble.nodes)
        epoch = int(day.ensemble.nodes[paths.CONTROLLER_EPOCH].data)
        assert image.controller_epoch == epoch >= (2 if day.happened else 1)
        await day.close()
        if not day.happened:
            break
    # A script without guarded writes would prove nothing.
    assert stop_before > 8


async def test_a_paused_controller_changes_nothing_when_it_resumes() -> None:
    """CTL-4: every write that it still attempts fails on its guard."""
    ensemble = FakeEnsemble()
    first, second = Member(ensemble.connect(), broker_id=1), Member(ensemble.connect(), broker_id=2)
    await first.start()
    await second.start()
    await second.until(lambda image: is_complete(image) and len(image.brokers) == 2)
    held_epoch = first.controller.state.held_epoch
    assert held_epoch is not None
    ensemble.expire(first.tree)
    await second.until(lambda image: image.controller_epoch > held_epoch.epoch and is_complete(image))
    before = ensemble.zxid, set(ensemble.nodes)
    usage = second.image.topics["__usage"]
    with pytest.raises(errors.ControllerMoved):
        await first.store.finish_deletion(held_epoch, usage)
    await first.store.resign(held_epoch)
    assert set(ensemble.nodes) >= before[1] - {paths.CONTROLLER}
    await second.until(lambda image: image.controller_id != -1 and is_complete(image))
    for member in (first, second):
        await member.stop()
        assert member.fatal == []


async def test_an_controllership_that_the_next_session_was_voted_into_is_taken_up() -> None:
    """CTL-1: the election was requested in a session that ended, and won in the next. While the new session lasts, no
    other broker can be elected.
    """
    ensemble = FakeEnsemble()
    first = Member(ensemble.connect(), broker_id=1)
    ended = iter([first.tree.session_id + 1_000])
    first.controller._session_id = lambda: next(ended, first.tree.session_id)
    await first.start()
    await first.until(lambda image: image.controller_id == 1)
    await first.publish_instance(INSTANCE, [1])
    await first.create_topic(INSTANCE, "kept", partitions=2)
    assert first.controller.is_controller
    await first.stop()
