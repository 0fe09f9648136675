"""OffsetCommit and OffsetFetch: committed offsets of groups (GRP-21…23).

Group ids and topics are prefixed internally (CKA-16). Version 0 of both calls uses ZooKeeper (`offsets.legacy`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar, Union

from brokers.contract.acls import ResourceType
from brokers.engine.coordinators.groups.offsets import NO_OFFSET, Commit, FetchedOffset, TopicOffsets
from brokers.engine.coordinators.limits import GROUP_ID_BYTES_MAX
from brokers.engine.handlers.common.background import split_into_parts
from brokers.engine.handlers.common.long_requests import ELEMENTS_PER_TURN_MAX, DuplicateLimit, repetitions_beyond_limit
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import call_group_coordinator
from brokers.engine.handlers.offsets import legacy
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others
from instances import naming

ResultT = TypeVar("ResultT", bound="PartitionResult")
WantedT = TypeVar("WantedT", bound="WantedPartition")
LEGACY_VERSION: Final = 0
# First versions whose response has an error code for the whole request, and whose request may name several groups.
ONE_ERROR_FROM: Final = 2
MANY_GROUPS_FROM: Final = 8
# aiokafka uses versions up to this one and reads only the errors of partitions. To it a response without partitions
# means that nothing is committed, so that it would begin at one end of the log.
ERRORS_IN_PARTITIONS_UNTIL: Final = 3
_RETRIABLE_ERRORS: Final = (int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), int(ErrorCode.NOT_COORDINATOR))
GROUPS_PER_REQUEST_MAX: Final = 10_000
# Number of groups that are awaited together.
GROUPS_TOGETHER_MAX: Final = 50
# Requested partitions by the client's topic names; None for all.
RequestedTopics = Sequence[tuple[str, list[int]]] | None
CommittedOrFetched = Union[TopicOffsets, list[FetchedOffset], "_JoinedParts"]
TopicResults = Sequence[tuple[str, CommittedOrFetched]]


class PartitionResult(Protocol):
    """Result of one partition in a response."""

    error_code: int


class WantedPartition(Protocol):
    """A partition in a request."""

    partition_index: int


class PartitionResults(Generic[ResultT, WantedT]):
    """Results of a request. `by_topic` has a result for each partition, under the client's topic names. `allowed` are
    the partitions for the coordinator: internal topic, requested partition, and its result.
    """

    __slots__ = ("allowed", "by_topic")

    def __init__(self, context: RequestContext, topics: Sequence[Any], make: Callable[[int, int], ResultT]) -> None:
        self.by_topic: list[tuple[str, list[ResultT]]] = []
        self.allowed: list[tuple[str, WantedT, ResultT]] = []
        for requested_topic in topics:
            topic, error = context.named_topic(requested_topic.name)
            partition_results = []
            for partition in requested_topic.partitions:
                result = make(partition.partition_index, error)
                partition_results.append(result)
                if error or topic is None:
                    continue
                if 0 <= partition.partition_index < len(topic.partitions):
                    self.allowed.append((topic.name, partition, result))
                else:
                    result.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.by_topic.append((requested_topic.name, partition_results))

    def complete(self, codes: Sequence[int]) -> None:
        """Sets the error codes of the allowed partitions, in their order."""
        for (_, _, result), code in zip(self.allowed, codes, strict=True):
            result.error_code = code

    def fail_all(self, code: int) -> None:
        """Sets one error code for all partitions, also for those of unknown topics."""
        for _, partition_results in self.by_topic:
            for result in partition_results:
                result.error_code = code

    def fail(self, code: int) -> None:
        """Sets one error code for all allowed partitions."""
        for _, _, result in self.allowed:
            result.error_code = code


def id_refusal(internal_id: str) -> int:
    """Returns the error code of an invalid group id, 0 if it is valid."""
    return int(ErrorCode.INVALID_GROUP_ID) if len(internal_id.encode()) > GROUP_ID_BYTES_MAX else 0


def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    results: PartitionResults[OffsetCommitResponsePartition, OffsetCommitRequestPartition] = PartitionResults(
        context,
        request.topics,
        lambda index, code: OffsetCommitResponsePartition(partition_index=index, error_code=code),
    )
    group_id = context.view.namespace.internal_id(request.group_id)
    denied = context.denial(ResourceType.GROUP, request.group_id)
    if denied:
        results.fail_all(denied)
        return _commit_response(results)
    if not results.allowed:
        return _commit_response(results)
    refusal = id_refusal(group_id)
    if refusal:
        results.fail(refusal)
        return _commit_response(results)
    if context.version == LEGACY_VERSION:
        committed = [(topic, requested_partition) for topic, requested_partition, _ in results.allowed]
        return _commit_later(results, legacy.commit(context, group_id if request.group_id else "", committed))
    commits = [
        Commit(
            topic,
            requested_partition.partition_index,
            requested_partition.committed_offset,
            requested_partition.committed_leader_epoch,
            requested_partition.committed_metadata or "",
            requested_partition.commit_timestamp,
        )
        for topic, requested_partition, _ in results.allowed
    ]
    reply = call_group_coordinator(
        context,
        group_id,
        lambda machine, now, _: machine.offsets.commit(
            now,
            group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            commits,
            request.retention_time_ms,
        ),
        lambda code: [code] * len(commits),
    )
    if type(reply) is list:
        results.complete(reply)
        return _commit_response(results)
    return _commit_later(results, reply)


async def _commit_later(results: PartitionResults[Any, Any], reply: Awaitable[list[int]]) -> OffsetCommitResponse:
    results.complete(await reply)
    return _commit_response(results)


def _commit_response(results: PartitionResults[OffsetCommitResponsePartition, Any]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=name, partitions=result) for name, result in results.by_topic]
    )


# -- fetch -------------------------------------------------------------------------------------------------------------


def offset_fetch(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.version >= MANY_GROUPS_FROM:
        return _fetch_groups(context, request)
    requested_topics: RequestedTopics = None
    if request.topics is not None:
        requested_topics = [(topic.name, topic.partition_indexes) for topic in request.topics]
    if context.version == LEGACY_VERSION:
        return _fetch_from_zookeeper(context, request.group_id, requested_topics or [])
    lookup = _OffsetLookup(context, request.group_id, requested_topics, request.require_stable, DuplicateLimit())
    reply = lookup.look_up_in_turns() if lookup.is_long else lookup.reply()
    if isinstance(reply, Awaitable):
        return _fetch_later(context, lookup, reply)
    return _fetch_response(context, lookup, *reply)


async def _fetch_later(
    context: RequestContext, lookup: _OffsetLookup, reply: Awaitable[tuple[int, TopicResults]]
) -> OffsetFetchResponse:
    error, results = await reply
    if error and _is_repeated_in_partitions(context, error):
        results = await legacy.error_for_all(lookup.requested_topics or (), error)
    return OffsetFetchResponse(error_code=error, topics=await _response_topics(results), groups=[])


def _fetch_response(
    context: RequestContext, lookup: _OffsetLookup, error: int, results: TopicResults
) -> OffsetFetchResponse:
    if error and _is_repeated_in_partitions(context, error):
        results = [
            (name, [FetchedOffset(index, NO_OFFSET, -1, "", error) for index in indexes])
            for name, indexes in lookup.requested_topics or ()
        ]
    topics = [
        OffsetFetchResponseTopic(name=name, partitions=lazy_partitions(OffsetFetchResponsePartition, partition_results))
        for name, partition_results in results
    ]
    return OffsetFetchResponse(error_code=error, topics=topics, groups=[])


def _is_repeated_in_partitions(context: RequestContext, error: int) -> bool:
    """True if each partition has to repeat the error, where clients of version 1 and some later ones expect it."""
    return context.version < ONE_ERROR_FROM or (
        context.version <= ERRORS_IN_PARTITIONS_UNTIL and error in _RETRIABLE_ERRORS
    )


async def _response_topics(results: Iterable[tuple[str, CommittedOrFetched]]) -> list[OffsetFetchResponseTopic]:
    time_slice = TimeSlice()
    topics = []
    for name, partition_results in results:
        await time_slice.pause()
        partitions = lazy_partitions(OffsetFetchResponsePartition, partition_results)
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return topics


def response_length(response: OffsetFetchResponse) -> int:
    """Returns the length of a response in topics, partitions and groups."""
    count = sum(1 + len(topic.partitions) for topic in response.topics)
    count += max(len(response.groups) - 1, 0)
    return count + sum(1 + len(topic.partitions) for group in response.groups for topic in group.topics)


async def _fetch_groups(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    groups: list[OffsetFetchResponseGroup] = []
    replies: list[tuple[str, tuple[int, TopicResults] | Awaitable[tuple[int, TopicResults]]]] = []
    repeated = DuplicateLimit()
    excess = repetitions_beyond_limit(group.group_id for group in request.groups)
    time_slice = TimeSlice()
    for number, group in enumerate(request.groups, start=1):
        if number % GROUPS_TOGETHER_MAX == 0:
            groups += await _fetched_groups(replies)
            replies = []
        await time_slice.pause()
        if next(excess) or number > GROUPS_PER_REQUEST_MAX:
            replies.append((group.group_id, (int(ErrorCode.INVALID_REQUEST), [])))
            continue
        requested_topics = (
            None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
        )
        lookup = _OffsetLookup(context, group.group_id, requested_topics, request.require_stable, repeated)
        # A long group is looked up here, since a task of its own would have no turns.
        replies.append((group.group_id, await lookup.look_up_in_turns() if lookup.is_long else lookup.reply()))
    groups += await _fetched_groups(replies)
    return OffsetFetchResponse(groups=groups, topics=[])


async def _fetched_groups(
    replies: Sequence[tuple[str, tuple[int, TopicResults] | Awaitable[tuple[int, TopicResults]]]],
) -> list[OffsetFetchResponseGroup]:
    """Returns the groups' results; groups that have to wait are awaited together."""
    later = [reply for _, reply in replies if isinstance(reply, Awaitable)]
    awaited_replies = iter(await asyncio.gather(*later))
    time_slice = TimeSlice()
    groups = []
    for group_id, reply in replies:
        error, result = next(awaited_replies) if isinstance(reply, Awaitable) else reply
        topics = []
        for name, partition_results in result:
            partitions = lazy_partitions(OffsetFetchResponsePartitions, partition_results)
            topics.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
            await time_slice.pause()
        groups.append(OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error))
    return groups


class LazyPartitions:
    """Partitions of a topic for the encoder, created as it reads them: a group may have 100,000 committed offsets."""

    __slots__ = ("_message_type", "_results")

    def __init__(self, message_type: Any, results: CommittedOrFetched) -> None:
        self._message_type, self._results = message_type, results

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Any]:
        message_type = self._message_type
        for index, offset, leader_epoch, metadata, error in self._results:
            yield message_type(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                metadata=metadata,
                error_code=error,
            )


def lazy_partitions(message_type: Any, results: CommittedOrFetched) -> Any:
    """Returns `LazyPartitions` for a field that the message declares as a list."""
    return LazyPartitions(message_type, results)


class _JoinedParts:
    """Results of one topic that was looked up in several parts."""

    __slots__ = ("parts",)

    def __init__(self, part: CommittedOrFetched) -> None:
        self.parts: list[CommittedOrFetched] = [part]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[FetchedOffset]:
        return chain.from_iterable(self.parts)


class _OffsetLookup:
    """Look-up of one group's offsets."""

    __slots__ = (
        "_context",
        "_denied",
        "_group_id",
        "_is_excessive",
        "_repeated",
        "_stable",
        "is_long",
        "requested_topics",
    )

    def __init__(
        self,
        context: RequestContext,
        group_id: str,
        requested_topics: RequestedTopics,
        require_stable: bool,
        repeated: DuplicateLimit,
    ) -> None:
        self._context = context
        self._denied = context.denial(ResourceType.GROUP, group_id)
        self._group_id = context.view.namespace.internal_id(group_id)
        self._stable = require_stable
        self._repeated = repeated
        self.requested_topics = requested_topics
        # True if the look-up takes more than one turn of the event loop.
        self.is_long = sum(1 + len(indexes) for _, indexes in requested_topics or ()) > ELEMENTS_PER_TURN_MAX
        self._is_excessive = (
            requested_topics is not None and not self.is_long and repeated.exceeded_by(requested_topics)
        )

    async def look_up_in_turns(self) -> tuple[int, TopicResults]:
        """Looks up the group like `reply`, some topics at a time."""
        result: list[tuple[str, CommittedOrFetched]] = []
        part_lookup = copy(self)
        self._is_excessive = part_lookup._is_excessive = await self._repeated.exceeded_by_many(
            self.requested_topics or ()
        )
        if self._is_excessive:
            return int(ErrorCode.INVALID_REQUEST) if not self._denied else self._denied, []
        for part, is_continuation in split_into_parts(self.requested_topics or ()):
            part_lookup.requested_topics = part
            reply = part_lookup.reply()
            error, part_results = await reply if isinstance(reply, Awaitable) else reply
            if error:
                return error, []
            if is_continuation:
                name, last = result.pop()
                joined = last if isinstance(last, _JoinedParts) else _JoinedParts(last)
                joined.parts.append(part_results[0][1])
                result += [(name, joined), *part_results[1:]]
            else:
                result += part_results
            await yield_to_others()
        return 0, result

    def reply(self) -> tuple[int, TopicResults] | Awaitable[tuple[int, TopicResults]]:
        """Returns an error code, and the results by the client's topic names; or an awaitable of both."""
        refusal = int(ErrorCode.INVALID_REQUEST) if self._is_excessive else id_refusal(self._group_id)
        refusal = self._denied or refusal
        if refusal:
            return refusal, []
        context, group_id, stable = self._context, self._group_id, self._stable
        refusals = [self._refusal(name) for name, _ in self.requested_topics or ()]
        names = None if self.requested_topics is None else self._names(refusals)
        reply = call_group_coordinator(
            context,
            group_id,
            lambda machine, _now, _: machine.offsets.fetch(group_id, names, require_stable=stable),
            int,
        )
        if isinstance(reply, Awaitable) or (not isinstance(reply, int) and len(reply) > ELEMENTS_PER_TURN_MAX):
            return self._with_client_names_later(reply, refusals)
        return self._with_client_names(reply, refusals)

    async def _with_client_names_later(self, reply: Any, refusals: Sequence[int]) -> tuple[int, TopicResults]:
        """Returns `_with_client_names` of a reply that is awaited, or that has many topics, some at a time."""
        if isinstance(reply, Awaitable):
            reply = await reply
        if self.requested_topics is not None or isinstance(reply, int):
            return self._with_client_names(reply, refusals)
        results: list[tuple[str, CommittedOrFetched]] = []
        for begin in range(0, len(reply), ELEMENTS_PER_TURN_MAX):
            results += self._with_client_names(reply[begin : begin + ELEMENTS_PER_TURN_MAX], refusals)[1]
            await yield_to_others()
        return 0, results

    def _names(self, refusals: Sequence[int]) -> list[tuple[str, Sequence[int]]]:
        """Returns the requested partitions by internal topic, without topics that the client may not see. Topics need
        not exist: a missing one has no committed offsets (GRP-23).
        """
        namespace = self._context.view.namespace
        return [
            (namespace.internal_topic(name), indexes)
            for (name, indexes), code in zip(self.requested_topics or (), refusals, strict=True)
            if not code
        ]

    def _refusal(self, name: str) -> int:
        topic = self._context.view.namespace.topics.get(name.encode())
        return self._context.denial(ResourceType.TOPIC, name) if topic is None else self._context.refusal(topic, name)

    def _with_client_names(
        self, reply: int | list[tuple[str, TopicOffsets]], refusals: Sequence[int]
    ) -> tuple[int, TopicResults]:
        """Returns the results; the reply has only those of `requested_topics` that were not refused."""
        if isinstance(reply, int):
            return reply, []
        if self.requested_topics is None:
            return 0, [(name, offsets) for name, offsets in self._rename_all(reply) if not self._refusal(name)]
        replies = iter(reply)
        result: list[tuple[str, CommittedOrFetched]] = []
        for (name, indexes), code in zip(self.requested_topics, refusals, strict=True):
            offsets: CommittedOrFetched = [] if code else next(replies)[1]
            # The right may have been lost while the coordinator was asked.
            code = code or self._refusal(name)
            if code:
                offsets = [FetchedOffset(index, NO_OFFSET, -1, "", code) for index in indexes]
            result.append((name, offsets))
        return 0, result

    def _rename_all(self, reply: list[tuple[str, TopicOffsets]]) -> list[tuple[str, TopicOffsets]]:
        """Returns the results by the client's topic names, without deleted topics whose internal name is hashed."""
        view = self._context.view
        result = []
        for internal, offsets in reply:
            topic = view.image.topics.get(internal)
            if view.instance_id is None:
                name: str | None = internal
            else:
                name = naming.plain_topic(internal) if topic is None else topic.user_name
            if name is not None:
                result.append((name, offsets))
        return result


async def _fetch_from_zookeeper(
    context: RequestContext, group_id: str, requested_topics: Sequence[tuple[str, Sequence[int]]]
) -> OffsetFetchResponse:
    internal_id = context.view.namespace.internal_id(group_id)
    denied = context.denial(ResourceType.GROUP, group_id)
    if denied:
        result = await legacy.error_for_all(requested_topics, denied)
    else:
        result = await legacy.fetch(context, internal_id if group_id else "", requested_topics)
    return OffsetFetchResponse(topics=await _response_topics(result), groups=[])
