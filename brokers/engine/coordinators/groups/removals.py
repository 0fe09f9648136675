"""What makes committed offsets go: DeleteGroups, OffsetDelete, age, and the end of a topic or an instance (GRP-26, 27).

Deletions are records like all else, and a group may have more offsets than one batch can hold. What does not fit is
done in steps, by a timer; who asked is answered after the last. A commit that comes in between is not touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, Final, Protocol

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.groups.committed import GroupOffsets
from brokers.engine.coordinators.groups.expiry import expired, subscribed
from brokers.engine.coordinators.groups.formats import group_key, offset_key
from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.groups.offsets import ShardOffsets, commit_error, is_over
from brokers.engine.coordinators.groups.rebalancing import remove
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now, StateRecord
from brokers.engine.protocol.errors import ErrorCode
from instances.naming import split_internal

log = structlog.get_logger(__name__)

EXPIRE_TIMER: Final = ("offsets", "expire")
REMOVE_TIMER: Final = ("offsets", "remove")
TIMERS: Final = frozenset((EXPIRE_TIMER, REMOVE_TIMER))
# Keys of one batch of deletions; far below what a partition accepts as one message.
BATCH_KEY_BYTES_MAX: Final = 256 << 10
# Offsets that are looked at for their age before others get their turn.
SCANNED_MAX: Final = 20_000


class Known(Protocol):
    """The image of the cluster as far as offsets depend on it."""

    def has_topic(self, internal_name: str) -> bool: ...
    def has_instance(self, instance_id: str) -> bool: ...


class _Everything:
    def has_topic(self, internal_name: str) -> bool:
        return True

    def has_instance(self, instance_id: str) -> bool:
        return True


EVERYTHING: Final = _Everything()


class _Removal:
    """`keys` of a group, as far as they are not committed anew behind `position`. `with_members`: the group goes,
    whoever is in it.
    """

    __slots__ = ("at", "failed", "group_id", "keys", "position", "reply", "ticket", "with_members")

    def __init__(
        self,
        group_id: str,
        keys: Sequence[PartitionKey],
        position: int,
        *,
        with_members: bool = False,
        ticket: object | None = None,
        reply: Any = None,
        failed: Callable[[int], Any] | None = None,
    ) -> None:
        self.group_id = group_id
        self.keys = keys
        self.position = position
        self.with_members = with_members
        self.ticket = ticket
        self.reply = reply
        self.failed = failed
        self.at = 0

    @property
    def is_done(self) -> bool:
        return self.at == len(self.keys)


class _Batch:
    """Deletions that are appended together."""

    def __init__(self, now: Now) -> None:
        # Members of groups that go; they are told whatever becomes of the append.
        self.dismissed = ResultBuilder(now)
        self.records: list[StateRecord] = []
        self.answers: list[tuple[object, Any]] = []
        self.taken: dict[str, set[PartitionKey]] = {}
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= BATCH_KEY_BYTES_MAX

    def add(self, key: bytes) -> None:
        self.records.append(StateRecord(key, None))
        self.size_bytes += len(key)


class OffsetRemovals:
    """The groups' machine hands on the timers in `TIMERS`. `known` says what has ended without anybody telling."""

    def __init__(self, offsets: ShardOffsets, known: Known = EVERYTHING) -> None:
        self._offsets = offsets
        self._groups = offsets.groups
        self._known = known
        self._queue: deque[_Removal] = deque()
        self._scan: Iterator[Group] | None = None
        self._scan_began = Now(0, 0)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def delete_group(self, now: Now, group_id: str, ticket: object) -> CoordinatorResult:
        """GRP-27. The reply is an error code."""
        group = self._groups.get(group_id)
        if group is None:
            return CoordinatorResult(int(ErrorCode.GROUP_ID_NOT_FOUND))
        if group.state is not State.EMPTY:
            return CoordinatorResult(int(ErrorCode.NON_EMPTY_GROUP))
        held = self._offsets.of(group_id)
        keys = [] if held is None else list(held.all_keys())
        return self._begin(now, self._removal(group_id, keys, ticket=ticket, reply=0, failed=lambda code: code))

    def delete_offsets(
        self, now: Now, group_id: str, keys: Sequence[PartitionKey], ticket: object
    ) -> CoordinatorResult:
        """GRP-27. The reply is `(error, an error for each of keys)`."""
        group = self._groups.get(group_id)
        if group is None:
            return CoordinatorResult((int(ErrorCode.GROUP_ID_NOT_FOUND), []))
        topics: frozenset[str] | None = frozenset()
        if group.state is not State.EMPTY:
            if not group.is_consumer:
                return CoordinatorResult((int(ErrorCode.NON_EMPTY_GROUP), []))
            topics = subscribed(group)
        codes = [
            int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if topics is None or topic in topics else 0 for topic, _ in keys
        ]
        gone = [key for key, code in zip(keys, codes, strict=True) if not code]
        if not gone:
            return CoordinatorResult((0, codes))
        return self._begin(
            now, self._removal(group_id, gone, ticket=ticket, reply=(0, codes), failed=lambda code: (code, []))
        )

    def topics_deleted(self, now: Now, internal_names: Collection[str]) -> CoordinatorResult:
        """Their offsets go, of every group (GRP-27)."""
        names = frozenset(internal_names)
        owners = {split_internal(name)[0] for name in names}
        for group_id, held in self._offsets.by_group.items():
            if held.instance_id in owners or held.instance_id is None:
                keys = held.keys_of(names)
                if keys:
                    self._queue.append(self._removal(group_id, keys))
        return self._result_of_queue(now)

    def instance_deleted(self, now: Now, instance_id: str) -> CoordinatorResult:
        """All its groups go, with whoever is still in them."""
        for group in self._groups.of_instance(instance_id):
            self._queue.append(self._end_of(group))
        return self._result_of_queue(now)

    # -- time ----------------------------------------------------------------------------------------------------------

    def timers_at_load(self, now: Now) -> list[tuple[Hashable, int | None]]:
        return [(EXPIRE_TIMER, now.monotonic_ms + self._offsets.settings.retention_check_interval_ms)]

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        return self._expire(now) if key == EXPIRE_TIMER else self._remove_some(now)

    def unload(self) -> list[tuple[object, Any]]:
        """Who asked for something that is not finished."""
        code = int(ErrorCode.NOT_COORDINATOR)
        result = [
            (removal.ticket, removal.failed(code))
            for removal in self._queue
            if removal.ticket is not None and removal.failed is not None
        ]
        self._queue.clear()
        return result

    def _expire(self, now: Now) -> CoordinatorResult:
        """A part of a scan over all groups, or the beginning of one."""
        if self._scan is None:
            self._scan = iter(self._groups)
            self._scan_began = now
        looked_at = 0
        for group in self._scan:
            # Somebody may have dropped it since the scan began.
            if self._groups.get(group.id) is not group:
                continue
            held = self._offsets.of(group.id)
            looked_at += 1 if held is None else 1 + held.count
            removal = self._of_age(now, group, held)
            if removal is not None:
                self._queue.append(removal)
            if looked_at >= SCANNED_MAX:
                next_ms = now.monotonic_ms
                break
        else:
            self._scan = None
            next_ms = self._scan_began.monotonic_ms + self._offsets.settings.retention_check_interval_ms
        result = self._result_of_queue(now)
        result.timers.append((EXPIRE_TIMER, max(next_ms, now.monotonic_ms)))
        return result

    def _of_age(self, now: Now, group: Group, held: GroupOffsets | None) -> _Removal | None:
        instance_id = split_internal(group.id)[0]
        if instance_id is not None and not self._known.has_instance(instance_id):
            return self._end_of(group)
        if held is None:
            return self._removal(group.id, []) if is_over(group) else None
        settings = self._offsets.settings
        keys = expired(group, held, now.wall_ms, settings.retention_ms)
        # Somebody deleted the topic while nobody coordinated here. What was committed a moment ago may be of one that
        # this image does not show yet.
        since_ms = now.wall_ms - settings.retention_check_interval_ms
        for topic, partitions in held.topics.items():
            if not self._known.has_topic(topic):
                keys += [(topic, index) for index, entry in partitions.items() if entry.commit_timestamp_ms < since_ms]
        return self._removal(group.id, keys) if keys else None

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _removal(self, group_id: str, keys: Sequence[PartitionKey], **how: Any) -> _Removal:
        return _Removal(group_id, keys, self._offsets.position, **how)

    def _end_of(self, group: Group) -> _Removal:
        held = self._offsets.of(group.id)
        return self._removal(group.id, [] if held is None else list(held.all_keys()), with_members=True)

    def _begin(self, now: Now, removal: _Removal) -> CoordinatorResult:
        """At once if one batch can hold it."""
        batch = _Batch(now)
        self._take(removal, batch)
        assert removal.failed is not None
        failed = removal.failed
        if removal.is_done:
            return CoordinatorResult(
                removal.reply,
                batch.records,
                late=failed,
                refused=lambda code: CoordinatorResult(failed(commit_error(code))),
            )
        self._queue.appendleft(removal)

        def refused(code: int) -> CoordinatorResult:
            self._queue.remove(removal)
            return CoordinatorResult(failed(commit_error(code)))

        return CoordinatorResult(
            REPLY_PENDING, batch.records, timers=[(REMOVE_TIMER, now.monotonic_ms)], refused=refused
        )

    def _result_of_queue(self, now: Now) -> CoordinatorResult:
        return CoordinatorResult(timers=[(REMOVE_TIMER, now.monotonic_ms)] if self._queue else None)

    def _remove_some(self, now: Now) -> CoordinatorResult:
        batch = _Batch(now)
        touched = []
        while self._queue and not batch.is_full:
            removal = self._queue[0]
            touched.append(removal)
            self._take(removal, batch)
            if not removal.is_done:
                break
            self._queue.popleft()
            if removal.ticket is not None:
                batch.answers.append((removal.ticket, removal.reply))
        result = self._result_of_queue(now)
        result.records = batch.records
        result.answers = batch.dismissed.answers() + batch.answers
        result.timers += batch.dismissed.timers()
        result.refused = lambda code: self._refused(now, touched, code, batch.dismissed)
        if batch.records:
            log.info("offsets_removed", records=len(batch.records), groups=len(touched))
        return result

    def _refused(self, now: Now, touched: Sequence[_Removal], code: int, dismissed: ResultBuilder) -> CoordinatorResult:
        """Nothing was deleted. Who asked is told; what nobody asked for comes up again by its age."""
        answers = dismissed.answers()
        for removal in touched:
            if removal in self._queue:
                self._queue.remove(removal)
            if removal.ticket is not None and removal.failed is not None:
                answers.append((removal.ticket, removal.failed(commit_error(code))))
        result = self._result_of_queue(now)
        result.answers = answers
        result.timers += dismissed.timers()
        return result

    def _take(self, removal: _Removal, batch: _Batch) -> None:
        """Puts into the batch what it has room for; with the last of a group's offsets the group itself."""
        group_id = removal.group_id
        held = self._offsets.of(group_id)
        taken = batch.taken.setdefault(group_id, set())
        while not removal.is_done and not batch.is_full:
            key = removal.keys[removal.at]
            removal.at += 1
            if held is not None and key not in taken and 0 <= held.newest(*key) <= removal.position:
                taken.add(key)
                batch.add(offset_key(group_id, *key))
        if not removal.is_done:
            return
        group = self._groups.get(group_id)
        if group is None or not (group.state is State.EMPTY or removal.with_members):
            return
        if held is not None and any(key not in taken for key in held.all_keys()):
            return
        if removal.with_members:
            for member in tuple(group.members.values()):
                remove(batch.dismissed, group, member)
            self._groups.recount(group)
        if group.has_record:
            batch.add(group_key(group_id))
        elif held is None or removal.with_members:
            # There is nothing of it in the log; otherwise it goes with its last offset.
            self._groups.drop(group_id)
