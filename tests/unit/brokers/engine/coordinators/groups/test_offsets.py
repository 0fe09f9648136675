"""Commits and fetches: permission, stored values, and values after a reload (GRP-21…23)."""

from __future__ import annotations

import pytest

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.groups.formats import (
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
    read_offset_value,
)
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.offsets import Commit, FetchedOffset
from brokers.engine.coordinators.result import StateRecord
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.groups.committing import (
    OTHER,
    TOPIC,
    append,
    commit,
    everything,
    exists,
    fetch,
    fetched,
    offset_of,
    put,
)
from tests.unit.brokers.engine.coordinators.groups.members import GROUP, SESSION_MS, Member, Shard, complete

ILLEGAL, UNKNOWN, FENCED = ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.fixture
def stable(shard: Shard) -> tuple[Shard, Member]:
    member = Member(shard)
    complete(member)
    return shard, member


# -- stored values -----------------------------------------------------------------------------------------------------


def test_a_committed_offset_is_fetched(shard: Shard) -> None:
    put(shard, 0, 5, leader_epoch=2, metadata="m")

    assert fetched(shard) == FetchedOffset(0, 5, 2, "m")


def test_an_offset_that_was_never_committed_is_unknown(shard: Shard) -> None:
    put(shard, 0, 5)

    nothing = FetchedOffset(9, -1, -1, "")
    assert fetched(shard, 9) == nothing
    assert fetched(shard, 9, OTHER) == nothing
    assert fetched(shard, 9, group="ins-aaaaaaaa.nobody") == nothing


def test_everything_of_a_group_can_be_asked_for_at_once(shard: Shard) -> None:
    put(shard, 0, 5)
    put(shard, 3, 6)
    put(shard, 0, 7, OTHER)

    assert everything(shard) == {(TOPIC, 0): 5, (TOPIC, 3): 6, (OTHER, 0): 7}
    assert everything(shard, "ins-aaaaaaaa.nobody") == {}


def test_a_group_may_go_back(shard: Shard) -> None:
    put(shard, 0, 5)
    put(shard, 0, 2)

    assert offset_of(shard) == 2


def test_the_last_entry_of_a_partition_named_twice_counts(shard: Shard) -> None:
    assert commit(shard, Commit(TOPIC, 0, 5), Commit(TOPIC, 0, 6)).replies == [[0, 0]]

    assert offset_of(shard) == 6


def test_groups_do_not_see_each_other(shard: Shard) -> None:
    put(shard, 0, 5, group="ins-aaaaaaaa.g")
    put(shard, 0, 6, group="ins-bbbbbbbb.g")

    assert offset_of(shard, group="ins-aaaaaaaa.g") == 5


def test_a_reload_comes_to_the_same(shard: Shard) -> None:
    put(shard, 0, 5)
    put(shard, 0, 9, metadata="m")
    put(shard, 1, 7)

    shard.reload()

    assert everything(shard) == {(TOPIC, 0): 9, (TOPIC, 1): 7}
    assert fetched(shard).metadata == "m"


def test_the_time_of_a_commit_is_the_brokers_unless_the_client_says_another(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 5), Commit(TOPIC, 1, 5, timestamp_ms=77))

    held = shard.machine.offsets.get(GROUP)
    assert held is not None
    assert [entry.commit_timestamp_ms for entry in held.topics[TOPIC].values()] == [shard.loop.now().wall_ms, 77]


def test_a_retention_is_written_down_as_an_expiry(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 5, leader_epoch=3), retention_ms=1_000)

    (_, _, value) = shard.log.batches[-1].records[0]
    assert value is not None
    wall_ms = shard.loop.now().wall_ms
    assert read_offset_value(value) == OffsetValue(5, -1, "", wall_ms, wall_ms + 1_000)


def test_a_retention_beyond_all_times_is_for_ever(shard: Shard) -> None:
    assert commit(shard, Commit(TOPIC, 0, 5), retention_ms=(1 << 63) - 1).replies == [[0]]

    held = shard.machine.offsets.get(GROUP)
    assert held is not None
    assert held.topics[TOPIC][0].expire_timestamp_ms == (1 << 63) - 1


# -- stable offsets ----------------------------------------------------------------------------------------------------


def test_a_commit_is_answered_when_it_is_replicated() -> None:
    shard = Shard(at_once=False)

    call = commit(shard, Commit(TOPIC, 0, 5))

    assert call.replies == []
    shard.log.replicate()
    assert call.replies == [[0]]


def test_a_fetch_never_shows_what_could_be_lost() -> None:
    shard = Shard(at_once=False)
    commit(shard, Commit(TOPIC, 0, 5))

    call = fetch(shard, [(TOPIC, [0])])

    assert call.replies == []
    shard.log.replicate()
    assert call.replies == [[(TOPIC, [FetchedOffset(0, 5, -1, "")])]]


def test_a_commit_that_is_not_replicated_in_time_times_out_and_may_still_count() -> None:
    shard = Shard(at_once=False)
    call = commit(shard, Commit(TOPIC, 0, 5))

    shard.advance(5_000)

    assert call.replies == [[ErrorCode.REQUEST_TIMED_OUT]]
    shard.log.replicate()
    assert offset_of(shard) == 5


@pytest.mark.parametrize(
    ("appended", "sent"),
    [(3, 15), (19, 15), (20, 15), (6, 16), (56, 16), (10, 28), (18, 28), (4, 28), (13, 14), (47, 47)],
)
def test_a_refused_append_has_the_error_code_that_clients_of_coordinators_know(
    shard: Shard, appended: int, sent: int
) -> None:
    put(shard, 0, 5)
    shard.log.refuses = appended

    call = commit(shard, Commit(TOPIC, 0, 6), Commit(TOPIC, 1, 6, metadata="m" * 5_000))

    assert call.replies == [[sent, ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert everything(shard) == {(TOPIC, 0): 5}


# -- permission --------------------------------------------------------------------------------------------------------


def test_without_a_generation_anybody_may_commit_where_nobody_is(shard: Shard) -> None:
    assert commit(shard, Commit(TOPIC, 0, 5), member_id="somebody").replies == [[0]]
    assert commit(shard, Commit(TOPIC, 0, 6), member_id="somebody else", instance="i").replies == [[0]]


def test_a_generation_of_a_group_nobody_knows_is_an_old_one(shard: Shard) -> None:
    assert commit(shard, Commit(TOPIC, 0, 5), generation=3, member_id="m").replies == [[ILLEGAL]]
    assert not exists(shard)


def test_a_generation_of_a_group_without_members_is_nobodys(shard: Shard) -> None:
    put(shard, 0, 5)

    assert commit(shard, Commit(TOPIC, 0, 5), generation=0, member_id="m").replies == [[UNKNOWN]]


def test_a_member_commits_in_its_generation(stable: tuple[Shard, Member]) -> None:
    shard, member = stable

    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]
    assert offset_of(shard) == 5


def test_in_a_living_group_only_its_members_commit(stable: tuple[Shard, Member]) -> None:
    shard, member = stable

    def code(**who: object) -> object:
        ((result,),) = commit(shard, Commit(TOPIC, 0, 5), **who).replies  # type: ignore[arg-type]
        return result

    assert code() == UNKNOWN
    assert code(generation=-1, member_id=member.id) == ILLEGAL
    assert code(generation=member.generation + 1, member_id=member.id) == ILLEGAL
    assert code(generation=member.generation, member_id="stranger") == UNKNOWN
    assert code(generation=member.generation, member_id=member.id, instance="i") == UNKNOWN
    assert everything(shard) == {}


def test_a_static_member_whose_place_was_taken_is_fenced(shard: Shard) -> None:
    member = Member(shard, instance="i")
    complete(member)

    assert commit(shard, Commit(TOPIC, 0, 5), member=member, instance="i").replies == [[0]]
    assert commit(shard, Commit(TOPIC, 0, 5), member=member, member_id="before", instance="i").replies == [[FENCED]]


def test_a_member_has_to_wait_between_join_and_sync(shard: Shard) -> None:
    member = Member(shard)
    member.take(member.join())
    assert shard.state is GroupState.COMPLETING

    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[ErrorCode.REBALANCE_IN_PROGRESS]]


def test_during_a_rebalance_the_old_generation_may_commit(stable: tuple[Shard, Member]) -> None:
    shard, member = stable
    Member(shard).join()
    assert shard.state is GroupState.PREPARING

    assert commit(shard, Commit(TOPIC, 0, 5), member=member).replies == [[0]]


def test_a_commit_counts_as_a_heartbeat(stable: tuple[Shard, Member]) -> None:
    shard, member = stable

    for offset in range(4):
        shard.advance(SESSION_MS // 2)
        assert commit(shard, Commit(TOPIC, 0, offset), member=member).replies == [[0]]

    assert shard.state is GroupState.STABLE
    shard.advance(SESSION_MS)
    assert shard.state is GroupState.EMPTY


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [("m" * 4_096, True), ("m" * 4_097, False), ("组" * 4_096, True), ("😀" * 2_048, True), ("😀" * 2_049, False)],
)
def test_metadata_is_limited_as_java_counts_characters(shard: Shard, metadata: str, fits: bool) -> None:
    call = commit(shard, Commit(TOPIC, 0, 5, metadata=metadata), Commit(TOPIC, 1, 5))

    assert call.replies == [[0 if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]]
    assert fetched(shard).metadata == (metadata if fits else "")
    assert offset_of(shard, 1) == 5


def test_metadata_that_no_record_can_hold_is_refused_whatever_the_limit_is() -> None:
    shard = Shard(metadata_bytes_max=1_000_000)

    call = commit(shard, Commit(TOPIC, 0, 5, metadata="m" * 32_767), Commit(TOPIC, 1, 5, metadata="m" * 32_768))

    assert call.replies == [[0, ErrorCode.OFFSET_METADATA_TOO_LARGE]]


def test_an_instance_at_its_limit_goes_on_with_what_it_has(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "OFFSETS_PER_INSTANCE_MAX", 2)
    monkeypatch.setattr(coordinator_limits, "OFFSETS_FLOOR", 1)

    call = commit(shard, *(Commit(TOPIC, partition, 5) for partition in range(3)))

    assert call.replies == [[0, 0, ErrorCode.POLICY_VIOLATION]]
    assert commit(shard, Commit(TOPIC, 0, 6), Commit(TOPIC, 2, 6)).replies == [[0, ErrorCode.POLICY_VIOLATION]]
    assert everything(shard) == {(TOPIC, 0): 6, (TOPIC, 1): 5}


def limit_bytes(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(coordinator_limits, "OFFSET_BYTES_PER_INSTANCE_MAX", limit)
    monkeypatch.setattr(coordinator_limits, "OFFSET_BYTES_FLOOR", 1)


def test_an_instance_at_its_limit_does_not_take_room_from_others(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_bytes(monkeypatch, 600)
    put(shard, 0, 5, metadata="m" * 100)

    assert commit(shard, Commit(TOPIC, 1, 5, metadata="m" * 100)).replies == [[ErrorCode.POLICY_VIOLATION]]
    assert commit(shard, Commit(TOPIC, 0, 6, metadata="m" * 100)).replies == [[0]]
    put(shard, 0, 5, group="ins-bbbbbbbb.g", metadata="m" * 100)


def test_a_deleted_offset_makes_room(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_bytes(monkeypatch, 300)
    put(shard, 0, 5)
    assert commit(shard, Commit(TOPIC, 1, 5)).replies == [[ErrorCode.POLICY_VIOLATION]]

    append(shard, StateRecord(encode_offset_key(GROUP, TOPIC, 0), None))
    shard.reload()

    put(shard, 1, 5)


def test_an_instance_may_not_have_groups_without_number(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "GROUPS_PER_INSTANCE_MAX", 1)
    put(shard, 0, 5)

    call = commit(shard, Commit(TOPIC, 0, 5), group="ins-aaaaaaaa.another")

    assert call.replies == [[ErrorCode.POLICY_VIOLATION]]
    put(shard, 0, 5, group="ins-bbbbbbbb.another")


# -- records of other versions -----------------------------------------------------------------------------------------


def test_an_offset_of_a_later_version_leaves_the_one_before(shard: Shard) -> None:
    put(shard, 0, 5)
    append(shard, StateRecord(encode_offset_key(GROUP, TOPIC, 0), b"\x00\x09" + bytes(30)))

    shard.reload()

    assert offset_of(shard) == 5


def test_records_of_an_unknown_kind_are_passed_over(shard: Shard) -> None:
    append(shard, StateRecord(b"\x00\x09whatever", b"?"), StateRecord(b"", b"?"))
    append(shard, StateRecord(encode_offset_key(GROUP, TOPIC, 0), encode_offset_value(OffsetValue(5, -1, "", 1))))

    shard.reload()

    assert everything(shard) == {(TOPIC, 0): 5}
