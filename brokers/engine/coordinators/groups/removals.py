"""Removal of committed offsets: DeleteGroups, OffsetDelete, expiry, and the deletion of a topic or an instance (GRP-26,
GRP-27).

Each deletion of an offset is a record, and a group may have more offsets than fit into one batch. The rest follows in
further batches, driven by a timer; the caller is answered after the last batch. Offsets that are committed meanwhile
are not deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Final, Protocol

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.committed import GroupOffsets
from brokers.engine.coordinators.groups.expiry import expired_partitions, subscribed_topics
from brokers.engine.coordinators.groups.formats import encode_group_key, encode_offset_key
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.offsets import ShardOffsets, commit_error, has_no_members
from brokers.engine.coordinators.groups.rebalancing import remove_member
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now, StateRecord
from brokers.engine.protocol.errors import ErrorCode
from instances.naming import split_internal

log = structlog.get_logger(__name__)

EXPIRE_TIMER: Final = ("offsets", "expire")
REMOVE_TIMER: Final = ("offsets", "remove")
REMOVAL_TIMERS: Final = frozenset((EXPIRE_TIMER, REMOVE_TIMER))
# Total size of the keys in one batch of deletions, far below the largest batch of a partition.
BATCH_KEY_BYTES_MAX: Final = 256 << 10
# Offsets whose age is checked in one step of a scan, before other work runs.
SCANNED_OFFSETS_MAX: Final = 20_000


class ExistingNames(Protocol):
    """The part of the cluster metadata image that the removal of offsets depends on."""

    def has_topic(self, internal_name: str) -> bool: ...
    def has_instance(self, instance_id: str) -> bool: ...


class _EverythingExists:
    """Image in which every topic and instance exists."""

    def has_topic(self, internal_name: str) -> bool:
        return True

    def has_instance(self, instance_id: str) -> bool:
        return True


EVERYTHING_EXISTS: Final = _EverythingExists()


class _Removal:
    """A removal of a group's offsets, possibly in several steps.

    Offsets of `keys` are removed unless they were committed after log offset `position`; `next_index` is the index
    of the next key. With `removes_members` the group is removed even if it has members. `ticket` is the call that waits
    for the removal, if any; it is answered with `reply`, or with `error_reply(code)` after an error.
    """

    __slots__ = ("error_reply", "group_id", "keys", "next_index", "position", "removes_members", "reply", "ticket")

    def __init__(
        self,
        group_id: str,
        keys: Sequence[PartitionKey],
        position: int,
        *,
        removes_members: bool = False,
        ticket: object | None = None,
        reply: Any = None,
        error_reply: Callable[[int], Any] | None = None,
    ) -> None:
        self.group_id = group_id
        self.keys = keys
        self.position = position
        self.removes_members = removes_members
        self.ticket = ticket
        self.reply = reply
        self.error_reply = error_reply
        self.next_index = 0

    @property
    def is_done(self) -> bool:
        return self.next_index == len(self.keys)


class _Batch:
    """Deletions that are appended as one batch."""

    def __init__(self, now: Now) -> None:
        # Replies to members of removed groups, which are sent even if the append fails.
        self.member_replies = ResultBuilder(now)
        self.records: list[StateRecord] = []
        self.deferred_replies: list[tuple[object, Any]] = []
        self.deleted_keys: dict[str, set[PartitionKey]] = {}
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= BATCH_KEY_BYTES_MAX

    def add(self, key: bytes) -> None:
        self.records.append(StateRecord(key, None))
        self.size_bytes += len(key)


class OffsetRemovals:
    """Removals of offsets and groups in one shard.

    `GroupMachine` passes the timers in `REMOVAL_TIMERS` to this class. `existing_names` shows which topics and
    instances were deleted while this broker was not the coordinator.
    """

    def __init__(self, offsets: ShardOffsets, existing_names: ExistingNames = EVERYTHING_EXISTS) -> None:
        self._offsets = offsets
        self._groups = offsets.groups
        self._existing_names = existing_names
        self._queue: deque[_Removal] = deque()
        # Groups that the current scan for expired offsets has not reached yet.
        self._scan: Iterator[Group] | None = None
        self._scan_began_at = Now(0, 0)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def delete_group(self, now: Now, group_id: str, ticket: object) -> CoordinatorResult:
        """Handles DeleteGroups for one group (GRP-27). The reply is an error code."""
        group = self._groups.get(group_id)
        if group is None:
            return CoordinatorResult(int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not GroupState.EMPTY:
            return CoordinatorResult(int(ErrorCode.NON_EMPTY_GROUP))
        offsets = self._offsets.get(group_id)
        keys = [] if offsets is None else list(offsets.all_partitions())
        return self._start_removal(
            now, self._new_removal(group_id, keys, ticket=ticket, reply=0, error_reply=lambda code: code)
        )

    def delete_offsets(
        self, now: Now, group_id: str, keys: Sequence[PartitionKey], ticket: object
    ) -> CoordinatorResult:
        """Handles OffsetDelete (GRP-27). The reply is `(error, error codes of keys)`."""
        group = self._groups.get(group_id)
        if group is None:
            return CoordinatorResult((int(ErrorCode.GROUP_ID_NOT_FOUND), []))
        topics: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if not group.is_consumer:
                return CoordinatorResult((int(ErrorCode.NON_EMPTY_GROUP), []))
            topics = subscribed_topics(group)
        codes = [
            int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if topics is None or topic in topics else 0 for topic, _ in keys
        ]
        removable = [key for key, code in zip(keys, codes, strict=True) if not code]
        if not removable:
            return CoordinatorResult((0, codes))
        return self._start_removal(
            now,
            self._new_removal(
                group_id, removable, ticket=ticket, reply=(0, codes), error_reply=lambda code: (code, [])
            ),
        )

    def on_topics_deleted(self, now: Now, internal_names: Collection[str]) -> CoordinatorResult:
        """Removes the offsets of deleted topics from all groups (GRP-27)."""
        names = frozenset(internal_names)
        owners = {split_internal(name)[0] for name in names}
        for group_id, offsets in self._offsets.offsets_by_group.items():
            if offsets.instance_id in owners or offsets.instance_id is None:
                keys = offsets.partitions_of_topics(names)
                if keys:
                    self._queue.append(self._new_removal(group_id, keys))
        return self._result_of_queue(now)

    def on_instance_deleted(self, now: Now, instance_id: str) -> CoordinatorResult:
        """Removes all groups of a deleted instance, with their members."""
        for group in self._groups.groups_of_instance(instance_id):
            self._queue.append(self._new_group_removal(group))
        return self._result_of_queue(now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def timers_at_load(self, now: Now) -> list[tuple[Hashable, int | None]]:
        return [(EXPIRE_TIMER, now.monotonic_ms + self._offsets.settings.retention_check_interval_ms)]

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        return self._expire(now) if key == EXPIRE_TIMER else self._remove_batch(now)

    def unload(self) -> list[tuple[object, Any]]:
        """Returns the replies to calls whose removals are not finished."""
        code = int(ErrorCode.NOT_COORDINATOR)
        result = [
            (removal.ticket, removal.error_reply(code))
            for removal in self._queue
            if removal.ticket is not None and removal.error_reply is not None
        ]
        self._queue.clear()
        return result

    def _expire(self, now: Now) -> CoordinatorResult:
        """Scans the next groups for expired offsets; begins a new scan if none is in progress."""
        if self._scan is None:
            self._scan = iter(self._groups)
            self._scan_began_at = now
        scanned_count = 0
        for group in self._scan:
            # Skip groups that were dropped since the scan began.
            if self._groups.get(group.id) is not group:
                continue
            offsets = self._offsets.get(group.id)
            scanned_count += 1 if offsets is None else 1 + offsets.count
            removal = self._expired_removal(now, group, offsets)
            if removal is not None:
                self._queue.append(removal)
            if scanned_count >= SCANNED_OFFSETS_MAX:
                next_scan_ms = now.monotonic_ms
                break
        else:
            self._scan = None
            next_scan_ms = self._scan_began_at.monotonic_ms + self._offsets.settings.retention_check_interval_ms
        result = self._result_of_queue(now)
        result.timers.append((EXPIRE_TIMER, max(next_scan_ms, now.monotonic_ms)))
        return result

    def _expired_removal(self, now: Now, group: Group, offsets: GroupOffsets | None) -> _Removal | None:
        instance_id = split_internal(group.id)[0]
        if instance_id is not None and not self._existing_names.has_instance(instance_id):
            return self._new_group_removal(group)
        if offsets is None:
            return self._new_removal(group.id, []) if has_no_members(group) else None
        settings = self._offsets.settings
        keys = expired_partitions(group, offsets, now.wall_ms, settings.retention_ms)
        # The topic was deleted while this broker was not the coordinator. A recent commit may be of a new topic that is
        # not in this broker's image yet.
        since_ms = now.wall_ms - settings.retention_check_interval_ms
        for topic, partitions in offsets.topics.items():
            if not self._existing_names.has_topic(topic):
                keys += [(topic, index) for index, entry in partitions.items() if entry.commit_timestamp_ms < since_ms]
        return self._new_removal(group.id, keys) if keys else None

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _new_removal(self, group_id: str, keys: Sequence[PartitionKey], **options: Any) -> _Removal:
        return _Removal(group_id, keys, self._offsets.position, **options)

    def _new_group_removal(self, group: Group) -> _Removal:
        offsets = self._offsets.get(group.id)
        keys = [] if offsets is None else list(offsets.all_partitions())
        return self._new_removal(group.id, keys, removes_members=True)

    def _start_removal(self, now: Now, removal: _Removal) -> CoordinatorResult:
        """Starts a removal that a client requested; it is finished at once if it fits into one batch."""
        batch = _Batch(now)
        self._fill_batch(removal, batch)
        assert removal.error_reply is not None
        error_reply = removal.error_reply
        if removal.is_done:
            return CoordinatorResult(
                removal.reply,
                batch.records,
                make_timeout_reply=error_reply,
                on_refused=lambda code: CoordinatorResult(error_reply(commit_error(code))),
            )
        self._queue.appendleft(removal)

        def on_refused(code: int) -> CoordinatorResult:
            self._queue.remove(removal)
            return CoordinatorResult(error_reply(commit_error(code)))

        return CoordinatorResult(
            REPLY_PENDING, batch.records, timers=[(REMOVE_TIMER, now.monotonic_ms)], on_refused=on_refused
        )

    def _result_of_queue(self, now: Now) -> CoordinatorResult:
        return CoordinatorResult(timers=[(REMOVE_TIMER, now.monotonic_ms)] if self._queue else None)

    def _remove_batch(self, now: Now) -> CoordinatorResult:
        batch = _Batch(now)
        removals_in_batch = []
        while self._queue and not batch.is_full:
            removal = self._queue[0]
            removals_in_batch.append(removal)
            self._fill_batch(removal, batch)
            if not removal.is_done:
                break
            self._queue.popleft()
            if removal.ticket is not None:
                batch.deferred_replies.append((removal.ticket, removal.reply))
        result = self._result_of_queue(now)
        result.records = batch.records
        result.deferred_replies = batch.member_replies.deferred_replies() + batch.deferred_replies
        result.timers += batch.member_replies.timers()
        result.on_refused = lambda code: self._fail_removals(now, removals_in_batch, code, batch.member_replies)
        if batch.records:
            log.info("offsets_removed", records=len(batch.records), groups=len(removals_in_batch))
        return result

    def _fail_removals(
        self, now: Now, removals_in_batch: Sequence[_Removal], code: int, member_replies: ResultBuilder
    ) -> CoordinatorResult:
        """Drops the removals of a refused batch and fails their callers; expired offsets are found by a later scan."""
        deferred_replies = member_replies.deferred_replies()
        for removal in removals_in_batch:
            if removal in self._queue:
                self._queue.remove(removal)
            if removal.ticket is not None and removal.error_reply is not None:
                deferred_replies.append((removal.ticket, removal.error_reply(commit_error(code))))
        result = self._result_of_queue(now)
        result.deferred_replies = deferred_replies
        result.timers += member_replies.timers()
        return result

    def _fill_batch(self, removal: _Removal, batch: _Batch) -> None:
        """Adds deletions to the batch until it is full; the group itself is deleted with its last offset."""
        group_id = removal.group_id
        offsets = self._offsets.get(group_id)
        deleted = batch.deleted_keys.setdefault(group_id, set())
        while not removal.is_done and not batch.is_full:
            key = removal.keys[removal.next_index]
            removal.next_index += 1
            if offsets is not None and key not in deleted and 0 <= offsets.newest_log_offset(*key) <= removal.position:
                deleted.add(key)
                batch.add(encode_offset_key(group_id, *key))
        if not removal.is_done:
            return
        group = self._groups.get(group_id)
        if group is None or not (group.state is GroupState.EMPTY or removal.removes_members):
            return
        if offsets is not None and any(key not in deleted for key in offsets.all_partitions()):
            return
        if removal.removes_members:
            for member in tuple(group.members.values()):
                remove_member(batch.member_replies, group, member)
            self._groups.update_usage(group)
        if group.has_record:
            batch.add(encode_group_key(group_id))
        elif offsets is None or removal.removes_members:
            # The log has no record of the group; otherwise it is dropped with its last offset.
            self._groups.drop(group_id)
