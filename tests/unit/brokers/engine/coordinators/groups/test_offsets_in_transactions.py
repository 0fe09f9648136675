"""Offsets of a transaction wait for its marker, live and at load alike (TXN-9)."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators.groups.offsets import Commit, FetchedOffset, Producer
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.groups.committing import (
    OTHER,
    PRODUCER,
    TOPIC,
    commit_in_transaction,
    delete_group,
    delete_offsets,
    end_transaction,
    everything,
    exists,
    fetched,
    offset_of,
    put,
)
from tests.unit.brokers.engine.coordinators.groups.members import Member, Shard, complete

UNSTABLE = FetchedOffset(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture(params=[False, True], ids=["live", "reloaded"])
def reloads(request: pytest.FixtureRequest) -> bool:
    """Parametrise tests by whether the coordinator moves between the commit and the marker."""
    return bool(request.param)


@pytest.fixture
def shard() -> Shard:
    return Shard()


def pending(shard: Shard, *offsets: int, reloads: bool = False, **more: object) -> None:
    commits = [Commit(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
    assert commit_in_transaction(shard, *commits, **more).replies == [[0] * len(offsets)]  # type: ignore[arg-type]
    if reloads:
        shard.reload()


def test_an_offset_that_waits_for_a_marker_is_not_shown(shard: Shard, reloads: bool) -> None:
    put(shard, 0, 3)
    pending(shard, 5, reloads=reloads)

    assert offset_of(shard) == 3
    assert everything(shard) == {(TOPIC, 0): 3}


def test_the_commit_marker_makes_it_count(shard: Shard, reloads: bool) -> None:
    put(shard, 0, 3)
    pending(shard, 5, 6, reloads=reloads)

    end_transaction(shard, committed=True)

    assert everything(shard) == {(TOPIC, 0): 5, (TOPIC, 1): 6}
    shard.reload()
    assert everything(shard) == {(TOPIC, 0): 5, (TOPIC, 1): 6}


def test_the_abort_marker_drops_it(shard: Shard, reloads: bool) -> None:
    put(shard, 0, 3)
    pending(shard, 5, 6, reloads=reloads)

    end_transaction(shard, committed=False)

    assert everything(shard) == {(TOPIC, 0): 3}
    shard.reload()
    assert everything(shard) == {(TOPIC, 0): 3}


def test_a_group_whose_only_offsets_are_aborted_is_none(shard: Shard, reloads: bool) -> None:
    pending(shard, 5, reloads=reloads)
    assert exists(shard)

    end_transaction(shard, committed=False)

    assert not exists(shard)


def test_a_reader_that_requires_stable_offsets_has_to_wait(shard: Shard, reloads: bool) -> None:
    put(shard, 0, 3)
    put(shard, 1, 3)
    pending(shard, 5, reloads=reloads)

    assert fetched(shard, require_stable=True) == UNSTABLE
    assert fetched(shard, 1, require_stable=True).offset == 3

    end_transaction(shard, committed=False)

    assert fetched(shard, require_stable=True).offset == 3


def test_a_marker_is_about_its_producer_alone(shard: Shard, reloads: bool) -> None:
    other = Producer(8, 0)
    pending(shard, 5)
    assert commit_in_transaction(shard, Commit(TOPIC, 1, 6), producer=other).replies == [[0]]
    if reloads:
        shard.reload()

    end_transaction(shard, committed=True, producer=other)

    assert everything(shard) == {(TOPIC, 1): 6}
    assert fetched(shard, require_stable=True) == UNSTABLE


def test_a_marker_completes_all_groups_of_its_producer(shard: Shard, reloads: bool) -> None:
    pending(shard, 5)
    pending(shard, 6, group="ins-aaaaaaaa.h", reloads=reloads)

    end_transaction(shard, committed=True)

    assert offset_of(shard) == 5
    assert offset_of(shard, group="ins-aaaaaaaa.h") == 6


def test_a_repeated_marker_changes_nothing(shard: Shard) -> None:
    pending(shard, 5)
    end_transaction(shard, committed=True)
    put(shard, 0, 9)

    end_transaction(shard, committed=True)
    end_transaction(shard, committed=False)

    assert offset_of(shard) == 9


def test_the_later_of_two_commits_in_the_log_counts(shard: Shard, reloads: bool) -> None:
    pending(shard, 5)
    put(shard, 0, 9)
    if reloads:
        shard.reload()

    end_transaction(shard, committed=True)

    assert offset_of(shard) == 9


def test_a_transaction_that_began_before_does_not_undo_a_deletion(shard: Shard, reloads: bool) -> None:
    put(shard, 0, 3)
    put(shard, 1, 4)
    pending(shard, 5)
    assert delete_offsets(shard, (TOPIC, 0)).replies == [(0, [0])]
    if reloads:
        shard.reload()

    end_transaction(shard, committed=True)

    assert everything(shard) == {(TOPIC, 1): 4}


def test_a_deleted_group_does_not_come_back_with_a_marker(shard: Shard, reloads: bool) -> None:
    pending(shard, 5)
    assert delete_group(shard).replies == [0]
    if reloads:
        shard.reload()

    end_transaction(shard, committed=True)

    assert not exists(shard)


def test_a_second_commit_of_the_same_transaction_replaces_the_first(shard: Shard, reloads: bool) -> None:
    pending(shard, 5)
    pending(shard, 7, reloads=reloads)

    end_transaction(shard, committed=True)

    assert offset_of(shard) == 7


def test_two_transactions_of_one_producer_one_after_the_other(shard: Shard, reloads: bool) -> None:
    pending(shard, 5)
    end_transaction(shard, committed=True)
    pending(shard, 6, reloads=reloads)
    end_transaction(shard, committed=False)

    assert offset_of(shard) == 5
    shard.reload()
    assert offset_of(shard) == 5


# -- permission --------------------------------------------------------------------------------------------------------


def test_clients_that_say_nothing_of_themselves_may_commit_in_a_living_group(shard: Shard) -> None:
    complete(Member(shard))

    pending(shard, 5)


def test_clients_that_name_a_member_must_name_it_rightly(shard: Shard) -> None:
    member = Member(shard)
    complete(member)

    def code(**who: object) -> object:
        ((result,),) = commit_in_transaction(shard, Commit(TOPIC, 0, 5), **who).replies  # type: ignore[arg-type]
        return result

    assert code(generation=member.generation, member_id=member.id) == 0
    assert code(generation=member.generation + 1, member_id=member.id) == ErrorCode.ILLEGAL_GENERATION
    assert code(generation=-1, member_id=member.id) == ErrorCode.ILLEGAL_GENERATION
    assert code(generation=member.generation, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(generation=member.generation, member_id=member.id, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_between_join_and_sync_a_transaction_may_commit(shard: Shard) -> None:
    member = Member(shard)
    member.take(member.join())

    pending(shard, 5, generation=member.generation, member_id=member.id)


def test_a_generation_of_a_group_nobody_knows_is_of_no_member(shard: Shard) -> None:
    call = commit_in_transaction(shard, Commit(TOPIC, 0, 5), generation=1, member_id="m")

    assert call.replies == [[ErrorCode.UNKNOWN_MEMBER_ID]]


def test_an_old_epoch_is_refused_by_the_log_and_nothing_waits(shard: Shard) -> None:
    put(shard, 0, 3)
    shard.log.refuses = ErrorCode.INVALID_PRODUCER_EPOCH

    call = commit_in_transaction(shard, Commit(TOPIC, 0, 5), Commit(OTHER, 0, 5))

    assert call.replies == [[ErrorCode.INVALID_PRODUCER_EPOCH] * 2]
    assert fetched(shard, require_stable=True).offset == 3


def test_the_append_is_part_of_the_producers_transaction(shard: Shard) -> None:
    pending(shard, 5)

    batch = shard.log.batches[-1]
    assert (batch.producer_id, batch.is_transactional) == (PRODUCER.id, True)
