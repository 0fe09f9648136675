"""One replica of a partition: the log, its role, and the pending operations.

An append verifies, writes and advances the high watermark in one call. With one replica the high watermark is the log
end offset (REP-1), with more a `Leadership` determines it. A disk error becomes KAFKA_STORAGE_ERROR here, after it was
reported to the table.
"""

from __future__ import annotations

from collections.abc import Callable

from brokers.contract.partitions import NO_LEADER
from brokers.engine.capacity.room import DISK_SHORT_MESSAGE, UNBOUNDED, UNMEASURED_DISK, DiskSpace, StorageRoom
from brokers.engine.partitions import damage
from brokers.engine.partitions.delayed_operations import DelayedOperation
from brokers.engine.partitions.leadership import Leadership
from brokers.engine.partitions.progress import effective_min_insync_replicas
from brokers.engine.partitions.results import AppendResult, ReadResult
from brokers.engine.partitions.topic_config import TopicConfig
from brokers.engine.partitions.verification import NO_TXN_ID, check_transactional, duplicate_result
from brokers.engine.records import error_codes
from brokers.engine.records.batch import CONTROL, TRANSACTIONAL
from brokers.engine.records.rejections import BatchRejected
from brokers.engine.records.validation import CheckedBatch, DecompressionBudget, Prechecked, check_batch, check_shape
from brokers.engine.storage.files import NotCached, StorageFailed
from brokers.engine.storage.log import NO_HOLE, Log
from brokers.engine.storage.producer_state import CachedBatch
from brokers.engine.storage.segment import DamagedSegment
from brokers.engine.storage.transactions import apply_control_batch

# Leader epoch of a request that does not check it (LOG-32).
NO_EPOCH = -1
# Isolation levels: committed records, stable records, and (only for followers) all records.
READ_UNCOMMITTED, READ_COMMITTED, LOG_END = 0, 1, 2


class Partition:
    """One replica of a partition.

    `topic` is the internal name. Fields may be read anywhere; only the table and replication change the role.
    """

    __slots__ = (
        "config",
        "delayed_operations",
        "disk",
        "epoch_start_offset",
        "high_watermark",
        "index",
        "is_follower",
        "is_leader",
        "isr",
        "keeps_min_isr",
        "leader",
        "leader_epoch",
        "leadership",
        "log",
        "offline",
        "on_storage_failure",
        "replicas",
        "room",
        "topic",
        "topic_id",
    )

    def __init__(
        self, log: Log, topic_id: bytes, config: TopicConfig, on_storage_failure: Callable[[StorageFailed], None]
    ) -> None:
        self.log = log
        self.topic = log.topic
        self.index = log.index
        self.topic_id = topic_id
        self.config = config
        self.on_storage_failure = on_storage_failure
        # Storage limit of the instance and free space of the disk; set before the partition is led.
        self.room: StorageRoom = UNBOUNDED
        self.disk: DiskSpace = UNMEASURED_DISK
        self.is_leader = False
        # True if this broker is a replica that does not lead. Clients may read it up to the high watermark.
        self.is_follower = False
        self.offline = False
        self.leader = NO_LEADER
        self.leader_epoch = log.epochs.latest
        self.epoch_start_offset = log.log_end_offset
        self.high_watermark = log.log_start_offset
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        # True if nothing is committed while fewer replicas are in sync than the topic wants (DEC-11).
        self.keeps_min_isr = False
        self.leadership: Leadership | None = None
        self.delayed_operations: set[DelayedOperation] = set()

    # -- offsets and sizes --------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def low_watermark(self) -> int:
        """Lowest log start offset of the in-sync replicas: records below it are permanently deleted."""
        leadership = self.leadership
        start_offset = self.log.log_start_offset
        return start_offset if leadership is None else leadership.low_watermark(start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Offset below which every record is committed and belongs to no open transaction (TXN-20)."""
        high_watermark = self.high_watermark
        pending = self.log.producers.transactions
        if pending.first_unstable_offset >= high_watermark:
            return high_watermark
        return max(min(pending.complete(high_watermark), high_watermark), self.log.log_start_offset)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def disk_bytes(self) -> int:
        return self.log.disk_bytes

    @property
    def last_fetched_epoch(self) -> int:
        """Leader epoch of the last batch, -1 for an empty log; a follower sends it to its leader (REP-15)."""
        return self.log.epochs.latest

    # -- role ---------------------------------------------------------------------------------------------------------

    def become_leader(
        self, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, now_ms: int
    ) -> None:
        """Makes this replica the leader in `leader_epoch` (LOG-30, REP-26); the same epoch again only updates replicas
        and ISR.

        `now_ms` is from a monotonic clock, here and in `update_follower_fetch_state`.
        """
        is_new_epoch = not self.is_leader or leader_epoch > self.leader_epoch
        if is_new_epoch:
            self.log.epochs.assign_unsaved(leader_epoch, self.log.log_end_offset)
            self.epoch_start_offset = self.log.log_end_offset
            self.leader_epoch = leader_epoch
        self.leader = leader
        self.replicas = replicas
        self.isr = isr
        self.is_leader = True
        self.is_follower = False
        follower_ids = tuple([replica for replica in replicas if replica != leader])
        leadership = self.leadership
        if follower_ids and leadership is None:
            leadership = self.leadership = Leadership()
            is_new_epoch = True
        if leadership is not None:
            if is_new_epoch:
                leadership.begin(follower_ids, isr, self.epoch_start_offset, now_ms)
            else:
                leadership.confirm(follower_ids, isr)
        self.advance_high_watermark()
        if not follower_ids:
            self.leadership = None

    def become_follower(self, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> None:
        """Makes this replica a follower of `leader`, -1 for none; pending operations are answered (REP-12)."""
        self.resign()
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.is_follower = True

    def resign(self) -> None:
        """Ends the leadership; pending operations are answered (REP-12)."""
        self.is_leader = self.is_follower = False
        self.leader = NO_LEADER
        self._end_delayed_operations()

    def fail(self) -> None:
        """Takes the partition offline: every later call returns KAFKA_STORAGE_ERROR."""
        self.offline = True
        self._end_delayed_operations()

    def _end_delayed_operations(self) -> None:
        for operation in tuple(self.delayed_operations):
            operation.on_leadership_lost(self)
        leadership = self.leadership
        if leadership is not None:
            self.leadership = None
            for operation in leadership.delayed_operations():
                operation.on_leadership_lost(self)

    def update_follower_fetch_state(
        self, replica: int, replica_epoch: int, offset: int, start_offset: int, now_ms: int
    ) -> bool:
        """Records a fetch of a replica from `offset`: it has all records below (REP-7, REP-11).

        Returns True if the replica may join the ISR. Must be called only for an offset at which the follower's log
        agrees with this one.
        """
        leadership = self.leadership
        follower = None if leadership is None else leadership.followers.get(replica)
        if leadership is None or follower is None:
            return False
        has_deleted_records = start_offset > follower.start_offset
        follower.update_fetch_state(offset, start_offset, self.log.log_end_offset, now_ms, replica_epoch)
        if self.high_watermark < self.log.log_end_offset:
            self.advance_high_watermark()
        if has_deleted_records and self.delayed_operations:
            for operation in tuple(self.delayed_operations):
                operation.on_progress(self)
        return replica not in leadership.in_sync and replica in leadership.isr_candidates(
            self.high_watermark, self.log.log_start_offset
        )

    def propose_isr(self, isr: tuple[int, ...] | None) -> None:
        """Sets the ISR that this leader writes to the documents, None once they were read again (REP-24)."""
        if self.leadership is not None:
            self.leadership.propose(isr)
            self.advance_high_watermark()

    def advance_high_watermark(self) -> None:
        """Advances the high watermark as far as the followers' progress allows (REP-11) and notifies pending
        operations.
        """
        previous_high_watermark = self.high_watermark
        leadership = self.leadership
        end_offset = self.log.log_end_offset
        high_watermark = end_offset if leadership is None else leadership.committed_offset(end_offset)
        if high_watermark <= previous_high_watermark or (
            self.keeps_min_isr and leadership is not None and not self.has_enough_replicas()
        ):
            return
        self.high_watermark = high_watermark
        if leadership is not None:
            for produce in leadership.pop_committed(high_watermark):
                produce.on_progress(self)
            for fetch in tuple(leadership.fetches):
                fetch.on_progress(self)
        if self.delayed_operations:
            self._notify_readers(previous_high_watermark, high_watermark)

    def follow_high_watermark(self, high_watermark: int) -> None:
        """Advances a follower's high watermark, and notifies the clients that wait for records here."""
        previous_high_watermark, self.high_watermark = self.high_watermark, high_watermark
        if self.delayed_operations:
            self._notify_readers(previous_high_watermark, high_watermark)

    def _notify_readers(self, previous_high_watermark: int, high_watermark: int) -> None:
        readable_bytes = self.log.bytes_between(previous_high_watermark, high_watermark)
        for operation in tuple(self.delayed_operations):
            operation.on_append(readable_bytes)
            operation.on_progress(self)

    # -- produce ------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        now_ms: int,
        *,
        acks: int,
        produce_version: int,
        verification_token: int = NO_TXN_ID,
        prechecked: Prechecked | None = None,
        budget: DecompressionBudget | None = None,
    ) -> AppendResult:
        """Appends the one batch in `records`, rewriting its header in place; needs a writable view. Never waits.

        With acks=-1 the caller then waits until `high_watermark` > the result's `last_offset` (`DelayedReplication`).
        `verification_token` authorizes a transactional batch (`verification`). Decompression during the check is
        charged to `budget`.
        """
        log = self.log
        try:
            size = check_shape(records, produce_version)
            if not -1 <= acks <= 1:
                return AppendResult(error_codes.INVALID_REQUIRED_ACKS)
            if self.offline:
                return AppendResult(error_codes.KAFKA_STORAGE_ERROR)
            if not self.is_leader:
                return AppendResult(error_codes.NOT_LEADER_OR_FOLLOWER)
            if acks == -1 and not self.has_enough_replicas():
                return AppendResult(error_codes.NOT_ENOUGH_REPLICAS, log_start_offset=log.log_start_offset)
            rules = self.config.batch_rules
            check = check_batch if prechecked is None else prechecked.check
            checked = check(records, size, rules, now_ms, budget)
        except BatchRejected as fault:
            return AppendResult(
                fault.code,
                log_start_offset=-1 if fault.omits_log_start else log.log_start_offset,
                error_message=fault.message,
                record_errors=fault.record_errors,
            )
        _, last_delta, _, attributes, producer_id, producer_epoch, base_sequence = checked
        if attributes & TRANSACTIONAL:
            refusal_or_duplicate = check_transactional(log, checked, verification_token)
            if refusal_or_duplicate is not None:
                return refusal_or_duplicate
        elif producer_id >= 0:
            duplicate_or_error = log.producers.check_sequence(producer_id, producer_epoch, base_sequence, last_delta)
            if isinstance(duplicate_or_error, CachedBatch):
                return duplicate_result(duplicate_or_error, log.log_start_offset)
            if duplicate_or_error != error_codes.NONE:
                return AppendResult(duplicate_or_error, log_start_offset=log.log_start_offset)
        room = self.room
        if self.disk.is_short and room.is_bounded:
            self.disk.refused_count += 1
            return self._refusal_result(error_codes.POLICY_VIOLATION, DISK_SHORT_MESSAGE)
        code = room.spend(len(checked[0]) * (len(self.replicas) or 1))
        if code:
            return self._refusal_result(code, room.refusal_message(code))
        return self.write(checked, now_ms)

    def _refusal_result(self, code: int, message: str) -> AppendResult:
        return AppendResult(code, log_start_offset=self.log.log_start_offset, error_message=message)

    def write(self, checked: CheckedBatch, now_ms: int) -> AppendResult:
        """Writes a verified batch and notifies pending operations; called only within this package."""
        log = self.log
        data, last_delta, max_timestamp, attributes, producer_id, producer_epoch, base_sequence = checked
        try:
            base_offset = log.append(data, last_delta, max_timestamp, self.leader_epoch, now_ms)
        except StorageFailed as failure:
            self.on_storage_failure(failure)
            return AppendResult(error_codes.KAFKA_STORAGE_ERROR)
        last_offset = base_offset + last_delta
        producers = log.producers
        if producer_id >= 0:
            if not attributes & TRANSACTIONAL:
                producers.update(producer_id, producer_epoch, base_sequence, last_delta, last_offset, max_timestamp)
            elif attributes & CONTROL:
                apply_control_batch(log, log.active, producer_id, producer_epoch, last_offset, max_timestamp, data)
            else:
                producers.update_in_transaction(
                    producer_id, producer_epoch, base_sequence, last_delta, last_offset, max_timestamp
                )
        producers.end_offset = last_offset + 1
        size = len(data)
        leadership = self.leadership
        if leadership is None:
            self.high_watermark = last_offset + 1
            if self.delayed_operations:
                for operation in tuple(self.delayed_operations):
                    operation.on_append(size)
                    operation.on_progress(self)
        else:
            for operation in tuple(leadership.fetches):
                operation.on_append(size)
            self.advance_high_watermark()
        stamped_ms = now_ms if self.config.batch_rules.log_append_time else -1
        return AppendResult(0, base_offset, stamped_ms, log.log_start_offset, None, size, last_offset)

    def has_enough_replicas(self) -> bool:
        """True if |ISR| >= min(min.insync.replicas, RF), required before an acks=-1 append and before its response
        (REP-12).
        """
        return len(self.isr) >= effective_min_insync_replicas(self.config.min_insync_replicas, len(self.replicas))

    # -- fetch and offsets --------------------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        isolation: int = 0,
        current_leader_epoch: int = -1,
        may_wait: bool = True,
        from_follower: bool = False,
    ) -> ReadResult:
        """Reads whole batches from `fetch_offset` on, about `max_bytes`; with `min_one_batch` the first in any case.

        Without `may_wait`, the result may be `uncached` instead of waiting for the disk. With `from_follower` a replica
        that does not lead is read, too.
        """
        code = self.refusal(current_leader_epoch)
        log = self.log
        if code and not (from_follower and code == error_codes.NOT_LEADER_OR_FOLLOWER and self._is_readable_follower):
            return ReadResult(code)
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            return ReadResult(error_codes.OFFSET_OUT_OF_RANGE)
        limit = self.high_watermark if isolation == 0 else self.limit(isolation)
        try:
            result = log.read(fetch_offset, max_bytes, limit, min_one_batch=min_one_batch, may_wait=may_wait)
        except NotCached as missing:
            return ReadResult(0, uncached=missing.uncached)
        except StorageFailed as failure:
            self.on_storage_failure(failure)
            return ReadResult(error_codes.KAFKA_STORAGE_ERROR)
        except DamagedSegment as found_damage:
            return ReadResult(damage.report(log, found_damage, fetch_offset))
        return ReadResult(0, self.high_watermark, self.last_stable_offset, log.log_start_offset, result)

    @property
    def _is_readable_follower(self) -> bool:
        """True for a follower whose log has no hole from a power cut, behind which records are missing."""
        return self.is_follower and self.log.hole_offset == NO_HOLE

    def limit(self, isolation: int) -> int:
        """Returns the end offset of the log for a reader of this isolation level."""
        if isolation == LOG_END:
            return self.log.log_end_offset
        return self.high_watermark if isolation == READ_UNCOMMITTED else self.last_stable_offset

    def report_disk_failure(self, error: OSError) -> None:
        """Reports a disk error that another reader of this log met; the partition goes offline with its disk."""
        self.on_storage_failure(StorageFailed(self.log.root, error))

    def end_offset_for_epoch(self, leader_epoch: int, current_leader_epoch: int = -1) -> tuple[int, int, int]:
        """Returns (error code, epoch, end offset) of the largest known epoch <= `leader_epoch` (LOG-31)."""
        code = self.refusal(current_leader_epoch)
        if code:
            return code, -1, -1
        return (error_codes.NONE, *self.log.epochs.end_offset(leader_epoch, self.log.log_end_offset))

    def refusal(self, current_leader_epoch: int) -> int:
        """Returns the error code for a reader, 0 if it is accepted; checks disk, role and leader epoch (LOG-32)."""
        if self.offline:
            return error_codes.KAFKA_STORAGE_ERROR
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            is_older = current_leader_epoch < self.leader_epoch
            return error_codes.FENCED_LEADER_EPOCH if is_older else error_codes.UNKNOWN_LEADER_EPOCH
        return error_codes.NONE if self.is_leader else error_codes.NOT_LEADER_OR_FOLLOWER

    def check(self) -> None:
        """Asserts the invariants; called by tests."""
        self.log.check()
        assert self.high_watermark <= self.log.log_end_offset, "the high watermark is past the end"
        assert not self.is_leader or self.leadership is not None or self.high_watermark == self.log.log_end_offset
