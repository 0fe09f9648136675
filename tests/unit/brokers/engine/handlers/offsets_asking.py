"""Offset calls as clients send them, for tests of their responses."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.testkit.wire import WireClient

WAIT_S = 10.0
GROUP = "g"
# Retriable errors.
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


async def coordinator_ready(client: WireClient, *groups: str) -> None:
    """Waits until this broker coordinates all groups."""
    async with asyncio.timeout(WAIT_S):
        for group in groups or (GROUP,):
            while True:
                request = FindCoordinatorRequest(key=group, key_type=0)
                answer = await client.call(ApiKey.FIND_COORDINATOR, 3, request)
                if not answer.error_code and await fetch_error(client, group) not in _NOT_YET:
                    break


async def fetch_error(client: WireClient, group: str) -> int:
    request = OffsetFetchRequest(group_id=group, topics=[])
    return int((await client.call(ApiKey.OFFSET_FETCH, 5, request)).error_code)


def commit_request(
    offsets: dict[tuple[str, int], int], *, group: str = GROUP, metadata: str | None = "m", **more: Any
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        topics.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=3,
                commit_timestamp=-1,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=lines) for name, lines in topics.items()],
        **more,
    )


async def commit(
    client: WireClient, offsets: dict[tuple[str, int], int], *, version: int = 7, **more: Any
) -> dict[tuple[str, int], int]:
    """Commits offsets; returns the error code of each partition."""
    answer = await client.call(ApiKey.OFFSET_COMMIT, version, commit_request(offsets, **more))
    return {(topic.name, line.partition_index): line.error_code for topic in answer.topics for line in topic.partitions}


async def fetch(
    client: WireClient,
    wanted: dict[str, list[int]] | None,
    *,
    version: int = 7,
    group: str = GROUP,
    require_stable: bool = False,
) -> tuple[int, dict[tuple[str, int], Any]]:
    """Fetches offsets; returns the error code of the request, and the partitions."""
    if version >= 8:
        topics = (
            None
            if wanted is None
            else [OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in wanted.items()]
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable
        )
        (result,) = (await client.call(ApiKey.OFFSET_FETCH, version, request)).groups
        assert result.group_id == group
    else:
        old = (
            None
            if wanted is None
            else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in wanted.items()]
        )
        request = OffsetFetchRequest(group_id=group, topics=old, require_stable=require_stable)
        result = await client.call(ApiKey.OFFSET_FETCH, version, request)
    lines = {(topic.name, line.partition_index): line for topic in result.topics for line in topic.partitions}
    return result.error_code, lines


async def offsets_of(client: WireClient, wanted: dict[str, list[int]] | None = None, **more: Any) -> dict[Any, int]:
    error, lines = await fetch(client, wanted, **more)
    assert error == 0, error
    return {key: line.committed_offset for key, line in lines.items()}


async def delete_offsets(client: WireClient, *keys: tuple[str, int], group: str = GROUP) -> tuple[int, dict[Any, int]]:
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=lines) for name, lines in topics.items()]
    )
    answer = await client.call(ApiKey.OFFSET_DELETE, 0, request)
    result = {
        (topic.name, line.partition_index): line.error_code for topic in answer.topics for line in topic.partitions
    }
    return answer.error_code, result


async def delete_groups(client: WireClient, *groups: str, version: int = 2) -> dict[str, int]:
    answer = await client.call(ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=list(groups)))
    return {result.group_id: result.error_code for result in answer.results}
