"""OffsetCommit, OffsetFetch, OffsetDelete and DeleteGroups over a real socket, in every version."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from brokers.contract import paths
from brokers.contract.documents import change_to_json
from brokers.engine.cluster.tree import Create, Delete
from brokers.engine.handlers.common import long_requests
from brokers.engine.handlers.offsets import deletion, offsets
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest
from tests.testkit.turns import count_turns
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.offsets_asking import (
    commit,
    coordinator_ready,
    delete_groups,
    delete_offsets,
    fetch,
    offsets_of,
)

ORDERS = ("orders", 0)


@pytest.fixture
async def ready(house: House) -> House:
    """Returns the house with a topic of two partitions, and a coordinator."""
    await house.topic("orders", 2)
    await coordinator_ready(house.mine)
    return house


async def test_a_committed_offset_is_fetched_in_every_version(ready: House) -> None:
    for version in range(1, 10):
        codes = await commit(ready.mine, {("orders", 0): version, ("orders", 1): 6}, version=version)

        assert codes == {("orders", 0): 0, ("orders", 1): 0}
        error, lines = await fetch(ready.mine, {"orders": [0, 1]}, version=version)
        assert error == 0
        assert [(line.committed_offset, line.metadata, line.error_code) for line in lines.values()] == [
            (version, "m", 0),
            (6, "m", 0),
        ]
        assert lines[ORDERS].committed_leader_epoch == (3 if version >= 6 else -1)


async def test_all_offsets_are_fetched_under_the_clients_names(ready: House) -> None:
    long = "t" * 249
    await ready.topic(long)
    await commit(ready.mine, {ORDERS: 5, (long, 0): 6})

    for version in range(2, 10):
        assert await offsets_of(ready.mine, None, version=version) == {ORDERS: 5, (long, 0): 6}


async def test_a_long_answer_is_made_in_pieces_and_is_the_same(ready: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are served between the chunks: a group may have 100,000 offsets."""
    for name in ("more", "most"):
        await ready.topic(name, 5)
    positions = {(name, index): 10 + index for name in ("more", "most") for index in range(5)}
    await commit(ready.mine, positions)
    taken = 0
    encode = long_requests.encode_response_in_pieces

    def counted(api_key: int, version: int, response: object) -> Generator[None, None, bytes]:
        nonlocal taken
        taken += 1
        return (yield from encode(api_key, version, response))

    monkeypatch.setattr(long_requests, "encode_response_in_pieces", counted)
    for lines_at_once, in_chunks in ((12, 0), (11, 1)):  # ten partitions of two topics
        monkeypatch.setattr(long_requests, "ELEMENTS_AT_ONCE_MAX", lines_at_once)
        for version in range(2, 10):
            taken = 0
            assert await offsets_of(ready.mine, None, version=version) == positions
            assert taken == in_chunks


@pytest.mark.parametrize("version", [2, 7, 8, 9])
async def test_a_long_question_is_answered_in_turns_and_in_its_order(ready: House, version: int) -> None:
    """A consumer of 2,000 topics: other requests are served in between."""
    await commit(ready.mine, {ORDERS: 7})
    asked = {f"topic-{number}": [0] for number in range(1_000)}
    asked |= {"orders": [0]} | {f"topic-{number}": [0] for number in range(1_000, 2_000)}
    async with count_turns() as turns:
        error, lines = await fetch(ready.mine, asked, version=version)
    assert error == 0
    assert [name for name, _ in lines] == list(asked)
    assert [key for key, line in lines.items() if line.committed_offset != -1] == [ORDERS]
    assert turns() > 4


@pytest.mark.parametrize("version", [2, 7, 8, 9])
async def test_a_topic_of_very_many_partitions_is_answered_in_turns_as_one(ready: House, version: int) -> None:
    await commit(ready.mine, {ORDERS: 7})
    async with count_turns() as turns:
        error, lines = await fetch(ready.mine, {"orders": list(range(2_000)), "other": [0]}, version=version)
    assert error == 0
    assert list(lines) == [*(("orders", index) for index in range(2_000)), ("other", 0)]
    assert [key for key, line in lines.items() if line.committed_offset != -1] == [ORDERS]
    assert turns() > 4


async def test_a_partition_named_again_and_again_is_refused_in_a_request_of_any_length(ready: House) -> None:
    error, lines = await fetch(ready.mine, {"orders": [0] * 1_500})
    assert (error, lines) == (ErrorCode.INVALID_REQUEST, {})


async def test_an_offset_that_was_never_committed_is_unknown(ready: House) -> None:
    for version in range(1, 10):
        error, lines = await fetch(ready.mine, {"orders": [0], "no-such-topic": [7]}, version=version, group="nobody")

        assert error == 0
        assert {key: (line.committed_offset, line.metadata, line.error_code) for key, line in lines.items()} == {
            ORDERS: (-1, "", 0),
            ("no-such-topic", 7): (-1, "", 0),
        }


async def test_several_groups_are_asked_for_at_once(ready: House) -> None:
    await coordinator_ready(ready.mine, "g", "h")
    await commit(ready.mine, {ORDERS: 5})
    await commit(ready.mine, {ORDERS: 6}, group="h")
    wanted = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="h", topics=wanted),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ]
    )

    answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 8, request)

    assert [(result.group_id, result.topics[0].partitions[0].committed_offset) for result in answer.groups] == [
        ("h", 6),
        ("g", 5),
    ]


async def test_asking_for_no_group_is_answered(ready: House) -> None:
    answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[]))

    assert answer.groups == []


async def test_an_empty_group_id_is_one_as_any(ready: House) -> None:
    await coordinator_ready(ready.mine, "")

    assert await commit(ready.mine, {ORDERS: 5}, group="") == {ORDERS: 0}
    assert await offsets_of(ready.mine, {"orders": [0]}, group="") == {ORDERS: 5}


async def test_commits_to_missing_partitions_are_refused_and_the_rest_is_committed(ready: House) -> None:
    codes = await commit(ready.mine, {ORDERS: 5, ("orders", 2): 5, ("orders", -1): 5, ("nowhere", 0): 5})

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {ORDERS: 0, ("orders", 2): unknown, ("orders", -1): unknown, ("nowhere", 0): unknown}
    assert await offsets_of(ready.mine) == {ORDERS: 5}


async def test_null_metadata_is_none(ready: House) -> None:
    await commit(ready.mine, {ORDERS: 5}, metadata=None)

    _, lines = await fetch(ready.mine, {"orders": [0]})
    assert lines[ORDERS].metadata == ""


async def test_too_much_metadata_is_refused(ready: House) -> None:
    codes = await commit(ready.mine, {ORDERS: 5}, metadata="m" * 4_097)

    assert codes == {ORDERS: ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def test_a_group_id_that_no_record_can_hold_is_refused(ready: House) -> None:
    long = "g" * 1_024

    assert await commit(ready.mine, {ORDERS: 5}, group=long) == {ORDERS: ErrorCode.INVALID_GROUP_ID}
    for version in (2, 9):
        assert (await fetch(ready.mine, {"orders": [0]}, group=long, version=version))[0] == ErrorCode.INVALID_GROUP_ID
    assert (await delete_offsets(ready.mine, ORDERS, group=long))[0] == ErrorCode.INVALID_GROUP_ID
    assert await delete_groups(ready.mine, long) == {long: ErrorCode.INVALID_GROUP_ID}


async def test_an_old_client_finds_an_error_of_the_group_in_its_partitions(ready: House) -> None:
    _, lines = await fetch(ready.mine, {"orders": [0]}, group="g" * 1_024, version=1)

    assert lines[ORDERS].error_code == ErrorCode.INVALID_GROUP_ID


# -- whose it is -------------------------------------------------------------------------------------------------------


async def test_instances_have_groups_and_topics_of_their_own(ready: House) -> None:
    await ready.broker.create_topic(ready.theirs, "orders", 2)
    await coordinator_ready(ready.theirs)
    await commit(ready.mine, {ORDERS: 5})
    await commit(ready.theirs, {ORDERS: 99})

    assert await offsets_of(ready.mine) == {ORDERS: 5}
    assert await offsets_of(ready.theirs) == {ORDERS: 99}
    assert await delete_groups(ready.theirs, "g") == {"g": 0}
    assert await offsets_of(ready.mine) == {ORDERS: 5}


async def test_the_cluster_sees_them_under_their_internal_names(ready: House) -> None:
    await commit(ready.mine, {ORDERS: 5})
    cluster = await ready.broker.internal_client("penstock")

    assert await offsets_of(cluster, None, group=f"{MINE}.g") == {(f"{MINE}.orders", 0): 5}


async def test_the_owner_may_ask_on_the_listener_inside_the_cluster(ready: House) -> None:
    await commit(ready.mine, {ORDERS: 5})
    owner = await ready.broker.internal_client(MINE)

    assert await offsets_of(owner) == {ORDERS: 5}


def offsets_kept(house: House) -> int:
    groups = house.broker.broker.services.coordination.groups
    assert groups is not None
    return sum(len(shard.machine.offsets) for shard in groups.shards())


async def test_offsets_of_a_deleted_instance_go(ready: House) -> None:
    await commit(ready.mine, {ORDERS: 5})
    announce = Create(paths.CHANGE_PREFIX, change_to_json([f"instances/{MINE}"]), sequence=True)

    await ready.broker.tree.commit([Delete(paths.instance(MINE), None), announce])

    await ready.broker.until(lambda: offsets_kept(ready) == 0)


async def test_offsets_of_a_deleted_topic_go(ready: House) -> None:
    await ready.topic("others")
    await commit(ready.mine, {ORDERS: 5, ("others", 0): 6})

    await ready.mine.call(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5_000))

    await ready.broker.until(lambda: offsets_kept(ready) == 1)
    await ready.topic("orders", 2)
    assert await offsets_of(ready.mine) == {("others", 0): 6}


async def test_a_client_that_may_not_consume_a_topic_commits_nothing_there(ready: House) -> None:
    await commit(ready.mine, {ORDERS: 5})
    await ready.allow(consume_ips=("10.0.0.1",))

    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await commit(ready.mine, {ORDERS: 6}) == {ORDERS: denied}
    assert await delete_offsets(ready.mine, ORDERS) == (0, {ORDERS: denied})
    _, lines = await fetch(ready.mine, {"orders": [0]})
    assert (lines[ORDERS].committed_offset, lines[ORDERS].error_code) == (-1, denied)
    assert await offsets_of(ready.mine, None) == {}


async def test_a_frozen_instance_still_commits(ready: House) -> None:
    await ready.broker.update_instance(MINE, state="frozen")

    assert await commit(ready.mine, {ORDERS: 5}) == {ORDERS: 0}


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_single_offsets_are_deleted(ready: House) -> None:
    await commit(ready.mine, {("orders", 0): 5, ("orders", 1): 6})

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await delete_offsets(ready.mine, ORDERS, ("orders", 9), ("nowhere", 0)) == (
        0,
        {ORDERS: 0, ("orders", 9): unknown, ("nowhere", 0): unknown},
    )
    assert await offsets_of(ready.mine) == {("orders", 1): 6}


async def test_deleting_offsets_of_nobody_is_an_error_for_all(ready: House) -> None:
    assert await delete_offsets(ready.mine, ORDERS) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert await delete_offsets(ready.mine, ORDERS, group="") == (ErrorCode.INVALID_GROUP_ID, {})


async def test_groups_are_deleted_each_for_itself(ready: House) -> None:
    await coordinator_ready(ready.mine, "h", "nobody")
    for version in range(3):
        await commit(ready.mine, {ORDERS: 5})
        await commit(ready.mine, {ORDERS: 5}, group="h")

        result = await delete_groups(ready.mine, "g", "nobody", "h", "g", version=version)

        assert result == {"g": 0, "nobody": ErrorCode.GROUP_ID_NOT_FOUND, "h": 0}
        assert await offsets_of(ready.mine) == {}


async def test_more_groups_than_a_request_may_name_are_refused_by_name(
    ready: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(ready.mine, {ORDERS: 5})
    monkeypatch.setattr(offsets, "GROUPS_PER_REQUEST_MAX", 1)
    monkeypatch.setattr(deletion, "GROUPS_PER_REQUEST_MAX", 1)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h")],
    )

    answer = await ready.mine.call(ApiKey.OFFSET_FETCH, 8, request)

    assert [(result.group_id, result.error_code) for result in answer.groups] == [
        ("g", 0),
        ("h", ErrorCode.INVALID_REQUEST),
    ]
    assert await delete_groups(ready.mine, "g", "h") == {"g": 0, "h": ErrorCode.INVALID_REQUEST}


async def test_before_there_is_a_coordinator_nobody_answers(house: House) -> None:
    await house.topic("orders")

    # No request for a coordinator was made yet.
    assert await commit(house.mine, {ORDERS: 5}) == {ORDERS: ErrorCode.NOT_COORDINATOR}
    assert (await fetch(house.mine, {"orders": [0]}))[0] == ErrorCode.NOT_COORDINATOR


async def test_a_client_that_looks_in_its_partitions_alone_does_not_take_a_refusal_for_nothing(house: House) -> None:
    """aiokafka would otherwise start over at one end of the log."""
    await house.topic("orders")

    for version in (1, 2, 3):
        error, lines = await fetch(house.mine, {"orders": [0]}, version=version)
        assert lines[ORDERS].error_code == ErrorCode.NOT_COORDINATOR
        assert error == (0 if version == 1 else ErrorCode.NOT_COORDINATOR)
    assert (await fetch(house.mine, {"orders": [0]}, version=4))[1] == {}
