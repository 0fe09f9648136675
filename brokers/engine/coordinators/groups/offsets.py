"""Committed offsets of one shard: commits, fetches, and the offsets of open transactions (GRP-21…25, TXN-9).

`GroupMachine` passes the records, markers and timers that concern offsets to this module. Replies are error codes and
tuples; the handlers encode them for each version of the protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from brokers.contract import coordinator_limits as limits
from brokers.engine.coordinators.groups.checking import FATAL_ERRORS, check_commit
from brokers.engine.coordinators.groups.committed import ENTRY_BYTES, CommittedOffset, GroupOffsets
from brokers.engine.coordinators.groups.formats import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    TEXT_BYTES_MAX,
    OffsetKey,
    OffsetValue,
    UnknownFormat,
    UnreadableRecord,
    encode_offset_key,
    encode_offset_value,
    read_offset_value,
)
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.registry import GroupRegistry
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import NO_PRODUCER, NO_VERIFICATION_TOKEN, CoordinatorResult, Now, StateRecord
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode
from instances.naming import split_internal

log = structlog.get_logger(__name__)

NO_OFFSET: Final = -1
NO_GENERATION: Final = -1
TIMESTAMP_MAX: Final = (1 << 63) - 1
# The client gave no retention, so the broker's applies.
DEFAULT_RETENTION_MS: Final = -1

# Error codes for clients, by the error code of a failed append (GRP-22). Codes that are not listed are passed on.
_CLIENT_ERRORS: Final[Mapping[int, ErrorCode]] = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_NO_TOPICS: Final[Mapping[str, Mapping[int, CommittedOffset]]] = {}
_NO_OFFSETS: Final[Mapping[int, CommittedOffset]] = {}
_NO_PARTITIONS: Final[frozenset[int]] = frozenset()
_UNBOUNDED: Final = 1 << 62
# Kinds of usage that the shards count by instance.
COUNT, BYTES = 0, 1
# Factor on the limits for pending offsets, so that an instance at its limit can still commit in transactions.
TRANSACTIONAL_FACTOR: Final = 2
_NOT_COMMITTED: Final = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", NO_TIMESTAMP, NO_TIMESTAMP, -1)


class Commit(NamedTuple):
    """A commit for one partition of an internal topic. With `timestamp_ms` -1 the time of arrival applies."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    timestamp_ms: int = NO_TIMESTAMP


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; `offset` is -1 if there is none."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: int = 0


class TopicOffsets:
    """Committed offsets of one topic at the time of an OffsetFetch.

    A group may have 100,000 of them. Entries are immutable, so only references are copied here, and each
    `FetchedOffset` is made when the handler iterates.
    """

    __slots__ = ("_entries", "_partitions", "_unstable")

    def __init__(self, partitions: Sequence[int], entries: Sequence[CommittedOffset], unstable: frozenset[int]) -> None:
        self._partitions, self._entries, self._unstable = partitions, entries, unstable

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[FetchedOffset]:
        unstable = self._unstable
        for index, entry in zip(self._partitions, self._entries, strict=True):
            if index in unstable:
                yield FetchedOffset(index, NO_OFFSET, NO_LEADER_EPOCH, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                yield FetchedOffset(index, entry[0], entry[1], entry[2])


class Producer(NamedTuple):
    """The producer of a transactional commit. `verification_token` is from its transaction's verification (TXN-27)."""

    id: int
    epoch: int
    verification_token: int = NO_VERIFICATION_TOKEN


def commit_error(code: int) -> int:
    """Returns the error code for a client whose commit failed at the append or at the verification (GRP-22)."""
    return int(_CLIENT_ERRORS.get(code, code))


def has_no_members(group: Group) -> bool:
    """True if a group has neither members nor pending member ids, so that it exists only because of its offsets."""
    return group.state is GroupState.EMPTY and not group.pending


class _RemainingQuota:
    """Number and bytes of offsets that an instance may still commit."""

    __slots__ = ("_bytes", "_count")

    def __init__(self, count: int, size_bytes: int) -> None:
        self._count, self._bytes = count, size_bytes

    def take(self, is_new: bool, more_bytes: int) -> bool:
        """Takes the quota of one commit; returns False and takes nothing if there is not enough."""
        if (is_new and self._count <= 0) or more_bytes > self._bytes:
            return False
        self._count -= is_new
        self._bytes -= more_bytes
        return True


class ShardOffsets:
    """The offsets of one shard of the group coordinator.

    `groups` are all groups of the shard; a group that has only offsets is in state Empty with generation 0. `position`
    is the last replayed log offset. `shards` are all shards that this broker leads, this one included.
    """

    def __init__(self, groups: GroupRegistry, shards: LedShards[ShardOffsets] | None = None) -> None:
        self.groups = groups
        self.shards: LedShards[ShardOffsets] = LedShards() if shards is None else shards
        self.shards.add(self)
        self.position = -1
        self.offsets_by_group: dict[str, GroupOffsets] = {}
        # Groups with pending offsets, by producer id.
        self._groups_by_open_producer: dict[int, set[str]] = {}

    @property
    def settings(self) -> GroupSettings:
        """The settings in force now."""
        return self.groups.settings

    def __len__(self) -> int:
        """Number of committed offsets."""
        return sum(group_offsets.count for group_offsets in self.offsets_by_group.values())

    def get(self, group_id: str) -> GroupOffsets | None:
        return self.offsets_by_group.get(group_id)

    # -- records -------------------------------------------------------------------------------------------------------

    def replay(self, key: OffsetKey, value: bytes | None, offset: int, producer_id: int) -> None:
        self.position = max(self.position, offset)
        group_id, topic, partition = key
        if value is None:
            self._replay_removal(key, producer_id)
            return
        try:
            read = read_offset_value(value)
        except (UnknownFormat, UnreadableRecord) as error:
            # The previous offset stays: reading from there again repeats records, reading from no offset may lose them.
            log.error("offset_unreadable", group=group_id, topic=topic, partition=partition, reason=str(error))
            return
        group_offsets = self.offsets_by_group.get(group_id)
        if group_offsets is None:
            group_offsets = self.offsets_by_group[group_id] = GroupOffsets(split_internal(group_id)[0])
            self.groups.get_or_create(group_id, NO_TIMESTAMP)
        entry = CommittedOffset(*read, offset)
        usage_before = group_offsets.usage
        if producer_id == NO_PRODUCER:
            group_offsets.put(topic, partition, entry)
        else:
            group_offsets.put_pending(producer_id, topic, partition, entry)
            self._groups_by_open_producer.setdefault(producer_id, set()).add(group_id)
        self._charge_usage_change(group_offsets, usage_before)

    def _replay_removal(self, key: OffsetKey, producer_id: int) -> None:
        group_id, topic, partition = key
        group_offsets = self.offsets_by_group.get(group_id)
        if group_offsets is None:
            return
        usage_before = group_offsets.usage
        if producer_id == NO_PRODUCER:
            group_offsets.remove(topic, partition)
        else:
            group_offsets.remove_pending(producer_id, topic, partition)
        self._charge_usage_change(group_offsets, usage_before)
        self._forget_if_empty(group_id, group_offsets)

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        self.position = max(self.position, offset)
        # Sorted, because the order of a set differs between processes.
        for group_id in sorted(self._groups_by_open_producer.pop(producer_id, ())):
            group_offsets = self.offsets_by_group.get(group_id)
            if group_offsets is None:
                continue
            usage_before = group_offsets.usage
            group_offsets.end_transaction(producer_id, committed)
            self._charge_usage_change(group_offsets, usage_before)
            self._forget_if_empty(group_id, group_offsets)
            self.groups.note_offsets_change(group_id, offset)

    def replay_group_removed(self, group_id: str) -> None:
        """Handles the deletion of a group's record. A group that still has offsets starts again with generation 0."""
        if group_id in self.offsets_by_group:
            self.groups.get_or_create(group_id, NO_TIMESTAMP)

    def _charge_usage_change(self, group_offsets: GroupOffsets, usage_before: tuple[int, int]) -> None:
        """Charges the instance for the change of its group's number and bytes of offsets, pending ones included."""
        count, size_bytes = group_offsets.usage
        if (count, size_bytes) != usage_before:
            self.shards.charge(self, group_offsets.instance_id, count - usage_before[0], size_bytes - usage_before[1])

    def _forget_if_empty(self, group_id: str, group_offsets: GroupOffsets) -> None:
        if not group_offsets.is_empty:
            return
        del self.offsets_by_group[group_id]
        group = self.groups.get(group_id)
        if group is not None and has_no_members(group) and not group.has_record:
            self.groups.drop(group_id)

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(
        self,
        now: Now,
        group_id: str,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        commits: Sequence[Commit],
        retention_ms: int = DEFAULT_RETENTION_MS,
    ) -> CoordinatorResult:
        """Commits offsets (GRP-21, GRP-22). The reply is an error code for each of `commits`."""
        group = self.groups.get(group_id)
        code = self._check_commit(group_id, group, generation, member_id, group_instance_id, transactional=False)
        if code:
            return CoordinatorResult([code] * len(commits), is_read=code in FATAL_ERRORS)
        timers: list[tuple[Hashable, int | None]] = []
        if group is not None and group.state is not GroupState.EMPTY:
            # A commit extends the session like a heartbeat.
            builder = ResultBuilder(now)
            member = group.members[member_id]
            builder.set_session_deadline(group, member, member.session_timeout_ms)
            timers = builder.timers()
        return self._store_commits(now, group_id, commits, retention_ms, timers=timers)

    def commit_in_transaction(
        self,
        now: Now,
        group_id: str,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        commits: Sequence[Commit],
        producer: Producer,
    ) -> CoordinatorResult:
        """Commits offsets that take effect when the producer's transaction commits (TXN-9). The reply is an error code
        for each of `commits`.
        """
        group = self.groups.get(group_id)
        code = self._check_commit(group_id, group, generation, member_id, group_instance_id, transactional=True)
        if code:
            return CoordinatorResult([code] * len(commits), is_read=code in FATAL_ERRORS)
        return self._store_commits(now, group_id, commits, DEFAULT_RETENTION_MS, producer=producer)

    def _check_commit(
        self,
        group_id: str,
        group: Group | None,
        generation: int,
        member_id: str,
        group_instance_id: str | None,
        *,
        transactional: bool,
    ) -> int:
        if group is not None:
            return check_commit(group, generation, member_id, group_instance_id, transactional=transactional)
        if generation > NO_GENERATION:
            # An unknown group has no members. A transactional commit would create the group, so its error is different.
            return int(ErrorCode.UNKNOWN_MEMBER_ID if transactional else ErrorCode.ILLEGAL_GENERATION)
        return 0 if self.groups.may_add_group(group_id) else int(ErrorCode.POLICY_VIOLATION)

    def _store_commits(
        self,
        now: Now,
        group_id: str,
        commits: Sequence[Commit],
        retention_ms: int,
        *,
        producer: Producer | None = None,
        timers: list[tuple[Hashable, int | None]] | None = None,
    ) -> CoordinatorResult:
        codes = self._commit_codes(group_id, commits, NO_PRODUCER if producer is None else producer.id)
        expire_ms = NO_TIMESTAMP
        if retention_ms != DEFAULT_RETENTION_MS:
            expire_ms = min(now.wall_ms + retention_ms, TIMESTAMP_MAX)
        records = []
        for commit, code in zip(commits, codes, strict=True):
            if code:
                continue
            committed_ms = now.wall_ms if commit.timestamp_ms == NO_TIMESTAMP else commit.timestamp_ms
            value = OffsetValue(commit.offset, commit.leader_epoch, commit.metadata, committed_ms, expire_ms)
            records.append(
                StateRecord(encode_offset_key(group_id, commit.topic, commit.partition), encode_offset_value(value))
            )
        if not records:
            return CoordinatorResult(codes, timers=timers)

        def error_codes(append_code: int) -> list[int]:
            error = commit_error(append_code)
            return [code or error for code in codes]

        result = CoordinatorResult(
            codes,
            records,
            timers=timers,
            make_timeout_reply=error_codes,
            on_refused=lambda code: CoordinatorResult(error_codes(code), timers=timers),
        )
        if producer is not None:
            result.producer_id, result.producer_epoch, result.verification_token = producer
        return result

    def _commit_codes(self, group_id: str, commits: Sequence[Commit], producer_id: int) -> list[int]:
        """Returns an error code for each commit, 0 if it may be stored.

        A pending offset is counted in addition to the committed offset of its partition.
        """
        group_offsets = self.offsets_by_group.get(group_id)
        in_transaction = producer_id != NO_PRODUCER
        instance_id = split_internal(group_id)[0] if group_offsets is None else group_offsets.instance_id
        remaining: _RemainingQuota | None = None
        codes = []
        for commit in commits:
            if not self._metadata_fits(commit.metadata):
                codes.append(int(ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            entry = None
            if group_offsets is not None:
                key = (commit.topic, commit.partition)
                entry = group_offsets.get_pending(producer_id, *key) if in_transaction else group_offsets.get(*key)
            more_bytes = len(commit.metadata) + (ENTRY_BYTES if entry is None else -len(entry.metadata))
            # An instance at its limit may still move the offsets it has.
            if entry is None or more_bytes > 0:
                if remaining is None:
                    remaining = self._remaining_quota(instance_id, TRANSACTIONAL_FACTOR if in_transaction else 1)
                if not remaining.take(entry is None, more_bytes):
                    codes.append(int(ErrorCode.POLICY_VIOLATION))
                    continue
            codes.append(0)
        return codes

    def _remaining_quota(self, instance_id: str | None, factor: int) -> _RemainingQuota:
        """Returns the quota that an instance has left on this broker, for `factor` times its limits."""
        if instance_id is None:
            return _RemainingQuota(_UNBOUNDED, _UNBOUNDED)
        remaining = self.shards.remaining
        return _RemainingQuota(
            remaining(instance_id, COUNT, limits.OFFSETS_PER_INSTANCE_MAX, limits.OFFSETS_FLOOR, factor),
            remaining(instance_id, BYTES, limits.OFFSET_BYTES_PER_INSTANCE_MAX, limits.OFFSET_BYTES_FLOOR, factor),
        )

    def _metadata_fits(self, metadata: str) -> bool:
        """True if the metadata is within the limit, which counts UTF-16 units as Kafka does, and fits into a record."""
        limit = self.settings.metadata_bytes_max
        if metadata.isascii():
            return len(metadata) <= min(limit, TEXT_BYTES_MAX)
        return len(metadata.encode("utf-16-le")) // 2 <= limit and len(metadata.encode()) <= TEXT_BYTES_MAX

    # -- reading -------------------------------------------------------------------------------------------------------

    def fetch(
        self, group_id: str, topics: Iterable[tuple[str, Sequence[int]]] | None, *, require_stable: bool
    ) -> CoordinatorResult:
        """Fetches the committed offsets of partitions of `topics`, or all with `topics` None (GRP-23).

        The reply is `[(topic, TopicOffsets)]`. With `require_stable` a partition that has a pending offset gets
        UNSTABLE_OFFSET_COMMIT.
        """
        group_offsets = self.offsets_by_group.get(group_id)
        by_topic = _NO_TOPICS if group_offsets is None else group_offsets.topics
        if topics is None:
            topics = ((topic, tuple(entries)) for topic, entries in by_topic.items())
        pending = group_offsets if require_stable and group_offsets is not None and group_offsets.pending else None
        reply = []
        for topic, partitions in topics:
            committed = by_topic.get(topic, _NO_OFFSETS)
            entries = [committed.get(index, _NOT_COMMITTED) for index in partitions]
            unstable = _NO_PARTITIONS
            if pending is not None:
                unstable = frozenset(index for index in partitions if pending.is_pending(topic, index))
            reply.append((topic, TopicOffsets(partitions, entries, unstable)))
        return CoordinatorResult(reply, depends_on_offset=self.groups.last_commit_offset(group_id), is_read=True)
