"""Expiry of offsets (GRP-26), and deletions of topics and instances that the coordinator missed."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.coordinators.groups import removals
from brokers.engine.coordinators.groups.formats import (
    GroupRecord,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
)
from brokers.engine.coordinators.groups.formats import encode_offset_value as value_of
from brokers.engine.coordinators.groups.machine import GroupMachine
from brokers.engine.coordinators.groups.offsets import Commit
from brokers.engine.coordinators.result import StateRecord
from tests.unit.brokers.engine.coordinators.fakes import FakeLog
from tests.unit.brokers.engine.coordinators.groups.committing import (
    OTHER,
    TOPIC,
    append,
    commit,
    commit_in_transaction,
    everything,
    exists,
    put,
)
from tests.unit.brokers.engine.coordinators.groups.members import GROUP, Member, Shard, complete
from tests.unit.brokers.engine.coordinators.groups.test_subscriptions import subscription

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
CHECK_MS = 600_000
# A deletion follows the check that found it.
STEP_MS = 1_000


@pytest.fixture
def shard() -> Shard:
    return Shard(session_timeout_ms_max=DAY_MS)


def days(shard: Shard, number: float) -> None:
    """Advance the time by a number of days without heartbeats, so that all sessions expire."""
    shard.loop.now_ms += int(number * DAY_MS)
    shard.advance(2 * CHECK_MS)


def retention_days(shard: Shard, number: int, *members: Member) -> None:
    """Advance the time by a number of days; `members` send heartbeats throughout."""
    for _ in range(number * DAY_MS // (6 * CHECK_MS)):
        shard.loop.now_ms += 6 * CHECK_MS
        for member in members:
            assert member.heartbeat() == 0
        shard.advance(0)


def consumer(shard: Shard, *topics: str) -> Member:
    member = Member(shard, protocols=(("range", subscription(*topics)),), session_timeout_ms=DAY_MS)
    complete(member)
    return member


def test_offsets_without_members_expire_by_when_they_were_committed(shard: Shard) -> None:
    put(shard, 0, 5)
    days(shard, 4)
    put(shard, 1, 6)

    days(shard, 4)

    assert everything(shard) == {(TOPIC, 1): 6}
    days(shard, 4)
    assert not exists(shard)
    shard.reload()
    assert not exists(shard)


def test_nothing_expires_before_its_time(shard: Shard) -> None:
    put(shard, 0, 5)

    shard.loop.now_ms += RETENTION_MS - 2 * CHECK_MS
    shard.advance(CHECK_MS)

    assert everything(shard) == {(TOPIC, 0): 5}


def test_a_group_that_commits_keeps_its_offsets(shard: Shard) -> None:
    for _ in range(4):
        put(shard, 0, 5)
        days(shard, 4)

    assert everything(shard) == {(TOPIC, 0): 5}


def test_a_group_keeps_all_its_offsets_from_when_the_last_member_left(shard: Shard) -> None:
    member = consumer(shard, "orders")
    assert commit(shard, Commit(TOPIC, 0, 5), Commit(OTHER, 0, 6, timestamp_ms=1), member=member).replies == [[0, 0]]
    retention_days(shard, 6, member)
    member.leave()

    days(shard, 6)
    assert everything(shard) == {(TOPIC, 0): 5, (OTHER, 0): 6}

    days(shard, 2)
    assert not exists(shard)
    shard.reload()
    assert not exists(shard)


def test_living_consumers_keep_what_they_read_and_lose_the_rest(shard: Shard) -> None:
    member = consumer(shard, "orders")
    assert commit(shard, Commit(TOPIC, 0, 5), Commit(OTHER, 0, 6), member=member).replies == [[0, 0]]

    retention_days(shard, 8, member)

    assert everything(shard) == {(TOPIC, 0): 5}


def test_where_a_subscription_cannot_be_read_nothing_expires(shard: Shard) -> None:
    member = Member(shard, protocols=(("range", b"?"),), session_timeout_ms=DAY_MS)
    complete(member)
    assert commit(shard, Commit(OTHER, 0, 6), member=member).replies == [[0]]

    retention_days(shard, 8, member)

    assert everything(shard) == {(OTHER, 0): 6}


def test_living_members_of_another_kind_keep_everything(shard: Shard) -> None:
    member = Member(shard, protocol_type="connect", session_timeout_ms=DAY_MS)
    complete(member)
    assert commit(shard, Commit(OTHER, 0, 6), member=member).replies == [[0]]

    retention_days(shard, 8, member)

    assert everything(shard) == {(OTHER, 0): 6}


def test_an_expiry_of_its_own_counts_alone(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 5), retention_ms=DAY_MS)
    commit(shard, Commit(TOPIC, 1, 6), retention_ms=30 * DAY_MS)
    put(shard, 2, 7)

    days(shard, 2)
    assert everything(shard) == {(TOPIC, 1): 6, (TOPIC, 2): 7}

    days(shard, 8)
    assert everything(shard) == {(TOPIC, 1): 6}

    days(shard, 30)
    assert not exists(shard)


def test_an_offset_that_waits_for_a_transaction_does_not_expire(shard: Shard) -> None:
    put(shard, 0, 5)
    put(shard, 1, 5)
    assert commit_in_transaction(shard, Commit(TOPIC, 0, 6)).replies == [[0]]

    days(shard, 8)

    assert everything(shard) == {(TOPIC, 0): 5}


def test_a_group_of_before_there_was_a_time_of_its_state_expires_by_its_commits(shard: Shard) -> None:
    wall_ms = shard.loop.now().wall_ms
    append(
        shard,
        StateRecord(encode_group_key(GROUP), encode_group_value(GroupRecord("consumer", 3, None, None, -1, ()))),
        StateRecord(encode_offset_key(GROUP, TOPIC, 0), value_of(OffsetValue(5, -1, "", wall_ms))),
        StateRecord(encode_offset_key(GROUP, TOPIC, 1), value_of(OffsetValue(6, -1, "", wall_ms + 4 * DAY_MS))),
    )
    shard.reload()

    days(shard, 8)

    assert everything(shard) == {(TOPIC, 1): 6}


def test_a_group_that_has_neither_members_nor_offsets_goes_at_the_next_look(shard: Shard) -> None:
    member = Member(shard)
    complete(member)
    member.leave()
    assert exists(shard)

    shard.advance(CHECK_MS + STEP_MS)

    assert not exists(shard)
    shard.reload()
    assert not exists(shard)


def test_somebody_on_the_way_keeps_the_group(shard: Shard) -> None:
    member = Member(shard, session_timeout_ms=2 * CHECK_MS)
    call = member.join(needs_member_id=True)
    member.id = call.replies[0].member_id

    shard.advance(CHECK_MS)

    assert exists(shard)


def test_a_look_at_many_offsets_takes_several_turns(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "SCANNED_OFFSETS_MAX", 3)
    groups = [f"ins-aaaaaaaa.g{number}" for number in range(20)]
    for group in groups:
        put(shard, 0, 5, group=group)

    days(shard, 8)

    assert not any(exists(shard, group) for group in groups)
    put(shard, 0, 5)
    days(shard, 8)
    assert not exists(shard)


def test_an_expiry_that_is_refused_comes_up_again(shard: Shard) -> None:
    put(shard, 0, 5)
    shard.log.refuses = 19
    days(shard, 8)
    assert exists(shard)

    shard.log.refuses = 0
    shard.advance(CHECK_MS + STEP_MS)

    assert not exists(shard)


# -- deletions that went unnoticed -------------------------------------------------------------------------------------


class Image:
    def __init__(self) -> None:
        self.topics_gone: set[str] = set()
        self.instances_gone: set[str] = set()

    def has_topic(self, internal_name: str) -> bool:
        return internal_name not in self.topics_gone

    def has_instance(self, instance_id: str) -> bool:
        return instance_id not in self.instances_gone


@pytest.fixture
def cluster_image() -> Image:
    return Image()


@pytest.fixture
def seeing(cluster_image: Image) -> Shard:
    """A shard that knows the image of the cluster."""

    class Seeing(Shard):
        def lead(self) -> None:
            new_machine: Any = lambda _: GroupMachine(lambda: self.settings, cluster_image)  # noqa: E731
            self.runtime._new_machine = new_machine
            super().lead()

    return Seeing(log=FakeLog(at_once=True))


def test_offsets_of_a_topic_that_was_deleted_while_nobody_coordinated_go(seeing: Shard, cluster_image: Image) -> None:
    put(seeing, 0, 5)
    put(seeing, 0, 6, OTHER)
    cluster_image.topics_gone.add(TOPIC)

    seeing.advance(3 * CHECK_MS)

    assert everything(seeing) == {(OTHER, 0): 6}


def test_a_topic_that_the_image_does_not_show_yet_keeps_its_offsets(seeing: Shard, cluster_image: Image) -> None:
    cluster_image.topics_gone.add(TOPIC)
    seeing.advance(CHECK_MS - 1_000)
    put(seeing, 0, 5)

    seeing.advance(2_000)

    assert everything(seeing) == {(TOPIC, 0): 5}


def test_groups_of_an_instance_that_was_deleted_while_nobody_coordinated_go(
    seeing: Shard, cluster_image: Image
) -> None:
    put(seeing, 0, 5)
    put(seeing, 0, 5, group="ins-bbbbbbbb.g")
    cluster_image.instances_gone.add("ins-aaaaaaaa")

    seeing.advance(2 * CHECK_MS)

    assert not exists(seeing)
    assert exists(seeing, "ins-bbbbbbbb.g")
