"""DeleteGroups, OffsetDelete, and offsets whose topic or instance ends (GRP-27)."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.coordinators.groups import removals
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.offsets import BYTES, COUNT, Commit
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.groups.committing import (
    OTHER,
    TOPIC,
    commit,
    commit_in_transaction,
    delete_group,
    delete_offsets,
    end_transaction,
    everything,
    exists,
    put,
)
from tests.unit.brokers.engine.coordinators.groups.members import GROUP, Member, Shard, complete, error
from tests.unit.brokers.engine.coordinators.groups.test_subscriptions import subscription

MANY = 300
STEP_MS = 1_000


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a batch to about ten deletions."""
    monkeypatch.setattr(removals, "BATCH_KEY_BYTES_MAX", 400)


def consumers(shard: Shard, *topics: str) -> Member:
    member = Member(shard, protocols=(("range", subscription(*topics)),))
    complete(member)
    return member


def many(shard: Shard, number: int = MANY, topic: str = TOPIC) -> None:
    call = commit(shard, *(Commit(topic, partition, partition) for partition in range(number)))
    assert call.replies == [[0] * number]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_deleted_group_has_no_offsets_and_is_none(shard: Shard) -> None:
    many(shard)

    assert delete_group(shard).replies == [0]

    assert everything(shard) == {}
    assert not exists(shard)
    shard.reload()
    assert everything(shard) == {}
    assert not exists(shard)


def test_a_deleted_group_that_had_members_leaves_no_record(shard: Shard) -> None:
    member = Member(shard)
    complete(member)
    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]
    member.leave()

    assert delete_group(shard).replies == [0]

    shard.reload()
    assert not exists(shard)
    assert delete_group(shard).replies == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_with_members_is_not_deleted(shard: Shard) -> None:
    member = Member(shard)
    complete(member)
    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]

    assert delete_group(shard).replies == [ErrorCode.NON_EMPTY_GROUP]
    assert everything(shard) == {(TOPIC, 0): 5}


def test_a_group_nobody_knows_cannot_be_deleted(shard: Shard) -> None:
    assert delete_group(shard).replies == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_is_deleted_when_that_is_replicated() -> None:
    shard = Shard(at_once=False)
    committing = commit(shard, Commit(TOPIC, 0, 5))
    shard.log.replicate()
    assert committing.replies == [[0]]

    call = delete_group(shard)

    assert call.replies == []
    shard.log.replicate()
    assert call.replies == [0]


def test_a_deletion_that_is_refused_changes_nothing(shard: Shard) -> None:
    put(shard, 0, 5)
    shard.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS

    assert delete_group(shard).replies == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert delete_offsets(shard, (TOPIC, 0)).replies == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, [])]

    shard.log.refuses = 0
    assert everything(shard) == {(TOPIC, 0): 5}


def test_somebody_who_was_given_an_id_starts_again_after_a_deletion(shard: Shard) -> None:
    member = Member(shard)
    call = member.join(needs_member_id=True)
    member.id = call.replies[0].member_id
    assert error(call) == ErrorCode.MEMBER_ID_REQUIRED

    assert delete_group(shard).replies == [0]

    assert not exists(shard)
    assert error(member.join()) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.usefixtures("small_batches")
def test_a_large_group_is_deleted_in_steps_and_answered_after_the_last(shard: Shard) -> None:
    many(shard)

    call = delete_group(shard)

    assert call.replies == []
    assert 0 < len(everything(shard)) < MANY
    shard.advance(STEP_MS)
    assert call.replies == [0]
    assert not exists(shard)
    shard.reload()
    assert not exists(shard)


@pytest.mark.usefixtures("small_batches")
def test_an_offset_committed_while_a_large_group_is_deleted_stays(shard: Shard) -> None:
    many(shard)
    call = delete_group(shard)

    put(shard, MANY - 1, 77)

    shard.advance(STEP_MS)
    assert call.replies == [0]
    assert everything(shard) == {(TOPIC, MANY - 1): 77}


@pytest.mark.usefixtures("small_batches")
def test_a_caller_of_a_large_deletion_is_answered_when_the_coordinator_moves(shard: Shard) -> None:
    many(shard)
    call = delete_group(shard)

    shard.reload()

    assert call.replies == [ErrorCode.NOT_COORDINATOR]
    assert 0 < len(everything(shard)) < MANY
    again = delete_group(shard)
    shard.advance(STEP_MS)
    assert again.replies == [0]


@pytest.mark.usefixtures("small_batches")
def test_a_large_deletion_that_is_refused_on_the_way_is_answered_with_the_error(shard: Shard) -> None:
    many(shard)
    call = delete_group(shard)
    shard.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS

    shard.advance(STEP_MS)

    assert call.replies == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    shard.log.refuses = 0
    shard.advance(STEP_MS)
    assert 0 < len(everything(shard)) < MANY


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_single_offsets_are_deleted(shard: Shard) -> None:
    many(shard, 3)

    assert delete_offsets(shard, (TOPIC, 0), (TOPIC, 2), (OTHER, 9)).replies == [(0, [0, 0, 0])]

    assert everything(shard) == {(TOPIC, 1): 1}
    shard.reload()
    assert everything(shard) == {(TOPIC, 1): 1}


def test_with_its_last_offset_an_empty_group_goes(shard: Shard) -> None:
    member = Member(shard)
    complete(member)
    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]
    member.leave()

    assert delete_offsets(shard, (TOPIC, 0)).replies == [(0, [0])]

    assert delete_offsets(shard, (TOPIC, 0)).replies == [(ErrorCode.GROUP_ID_NOT_FOUND, [])]
    shard.reload()
    assert not exists(shard)


def test_offsets_of_a_subscribed_topic_are_not_deleted(shard: Shard) -> None:
    member = consumers(shard, "orders")
    assert commit(shard, Commit(TOPIC, 0, 5), Commit(OTHER, 0, 6), member=member).replies == [[0, 0]]

    call = delete_offsets(shard, (TOPIC, 0), (OTHER, 0))

    assert call.replies == [(0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])]
    assert everything(shard) == {(TOPIC, 0): 5}


def test_where_a_subscription_cannot_be_read_all_topics_count_as_read(shard: Shard) -> None:
    member = Member(shard, protocols=(("range", b"?"),))
    complete(member)
    assert commit(shard, Commit(OTHER, 0, 6), member=member).replies == [[0]]

    assert delete_offsets(shard, (OTHER, 0)).replies == [(0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])]


def test_offsets_of_living_members_that_are_no_consumers_stay(shard: Shard) -> None:
    member = Member(shard, protocol_type="connect")
    complete(member)
    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]

    assert delete_offsets(shard, (TOPIC, 0)).replies == [(ErrorCode.NON_EMPTY_GROUP, [])]


@pytest.mark.usefixtures("small_batches")
def test_many_offsets_are_deleted_in_steps(shard: Shard) -> None:
    many(shard)

    call = delete_offsets(shard, *((TOPIC, partition) for partition in range(MANY - 1)))

    shard.advance(STEP_MS)
    assert call.replies == [(0, [0] * (MANY - 1))]
    assert everything(shard) == {(TOPIC, MANY - 1): MANY - 1}


# -- topics and instances ----------------------------------------------------------------------------------------------


def tell(shard: Shard, operation: Any) -> None:
    shard.ask(lambda machine, now, _: operation(machine.removals, now))
    shard.advance(STEP_MS)


def test_the_offsets_of_a_deleted_topic_go_in_every_group(shard: Shard) -> None:
    put(shard, 0, 5)
    put(shard, 0, 6, OTHER)
    put(shard, 0, 7, group="ins-aaaaaaaa.h")
    put(shard, 0, 8, "ins-bbbbbbbb.orders", group="ins-bbbbbbbb.g")

    tell(shard, lambda removals, now: removals.on_topics_deleted(now, [TOPIC]))

    assert everything(shard) == {(OTHER, 0): 6}
    assert not exists(shard, "ins-aaaaaaaa.h")
    assert everything(shard, "ins-bbbbbbbb.g") == {("ins-bbbbbbbb.orders", 0): 8}
    shard.reload()
    assert everything(shard) == {(OTHER, 0): 6}


def test_living_members_keep_their_group_when_a_topic_is_deleted(shard: Shard) -> None:
    member = consumers(shard, "orders")
    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]

    tell(shard, lambda removals, now: removals.on_topics_deleted(now, [TOPIC]))

    assert everything(shard) == {}
    assert shard.state is GroupState.STABLE


def test_pending_offsets_of_a_deleted_topic_are_removed_too(shard: Shard) -> None:
    assert commit_in_transaction(shard, Commit(TOPIC, 0, 5), Commit(OTHER, 0, 6)).replies == [[0, 0]]

    tell(shard, lambda removals, now: removals.on_topics_deleted(now, [TOPIC]))

    end_transaction(shard, committed=True)
    assert everything(shard) == {(OTHER, 0): 6}


def test_a_topic_that_is_made_again_starts_anew(shard: Shard) -> None:
    put(shard, 0, 5)
    shard.ask(lambda machine, now, _: machine.removals.on_topics_deleted(now, [TOPIC]))
    put(shard, 0, 1)

    shard.advance(STEP_MS)

    assert everything(shard) == {(TOPIC, 0): 1}


@pytest.mark.usefixtures("small_batches")
def test_with_an_instance_all_its_groups_go_and_nobody_elses(shard: Shard) -> None:
    many(shard)
    living = Member(shard, group="ins-aaaaaaaa.living")
    complete(living)
    waiting = Member(shard, group="ins-aaaaaaaa.living").join()
    put(shard, 0, 8, "ins-bbbbbbbb.orders", group="ins-bbbbbbbb.g")

    tell(shard, lambda removals, now: removals.on_instance_deleted(now, "ins-aaaaaaaa"))

    assert error(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(2):
        assert [group.id for group in shard.machine.groups] == ["ins-bbbbbbbb.g"]
        assert everything(shard, "ins-bbbbbbbb.g") == {("ins-bbbbbbbb.orders", 0): 8}
        shard.reload()


def test_the_accountings_are_balanced_in_the_end(shard: Shard) -> None:
    many(shard)
    assert commit_in_transaction(shard, Commit(OTHER, 0, 5, metadata="m")).replies == [[0]]
    assert len(shard.machine.offsets) == MANY

    assert delete_group(shard, GROUP).replies == [0]

    assert len(shard.machine.offsets) == 0
    assert [shard.machine.offsets.shards.used("ins-aaaaaaaa", kind) for kind in (COUNT, BYTES)] == [0, 0]
