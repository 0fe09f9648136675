"""Log of one partition of a state topic (`__consumer_offsets` or `__transaction_state`), for its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from brokers.engine.coordinators.interfaces import LogUnreadable, StoredBatch
from brokers.engine.coordinators.result import Now
from brokers.engine.handlers.fetch.waits import UncachedRead, prefetch
from brokers.engine.handlers.produce.delayed_produce import error_of
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.partitions.delayed_operations import DelayedReplication, LeadershipCheck
from brokers.engine.partitions.leadership_check import is_sole_in_sync_replica
from brokers.engine.partitions.partition import LOG_END, Partition
from brokers.engine.partitions.transactions import append_state
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records import batch as layout
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.control import COMMIT, marker_kind
from brokers.engine.records.keys_and_values import read_keys_and_values
from brokers.engine.records.walk import Malformed

# Bytes read and parsed in one turn of the event loop at load, which takes a few milliseconds.
READ_BYTES: Final = 65_536


class PartitionLog:
    """Implements `coordinators.interfaces.StateLog` for one partition, during one leadership of this broker."""

    def __init__(self, services: BrokerServices, partition: Partition) -> None:
        self._services = services
        self._partition = partition
        self.index = partition.index
        self.leader_epoch = partition.leader_epoch

    @property
    def is_led(self) -> bool:
        partition = self._partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch and not partition.offline

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    @property
    def start_offset(self) -> int:
        return self._partition.log_start_offset

    def append(self, batch: bytearray, now: Now, verification_token: int) -> tuple[int, int]:
        stall_detector = self._services.storage.stall_detector
        if now.wall_ms - stall_detector.checked_ms > stall_detector.pause_ms_max:
            stall_detector.check(now.wall_ms)
        if not self.is_led:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1
        result = append_state(self._partition, batch, now.wall_ms, verification_token)
        return result.error_code, result.last_offset

    def call_when_committed(self, last_offset: int, on_complete: Callable[[int], None]) -> DelayedReplication:
        partition, loop = self._partition, self._services.loop
        wait = DelayedReplication(lambda: loop.call_soon(complete))

        def complete() -> None:
            if self.is_led:
                on_complete(_commit_error(error_of(wait, partition, last_offset)))
            else:
                on_complete(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

        wait.watch(partition, last_offset)
        return wait

    @property
    def is_sole_in_sync_replica(self) -> bool:
        return is_sole_in_sync_replica(self._partition)

    def call_when_leadership_confirmed(self, on_complete: Callable[[int], None]) -> LeadershipCheck:
        loop = self._services.loop

        def complete() -> None:
            on_complete(0 if check.is_confirmed and self.is_led else int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

        check = self._services.storage.leadership_checks.start(self._partition, lambda: loop.call_soon(complete))
        return check

    async def read(self, offset: int) -> tuple[Sequence[StoredBatch], int]:
        # Concurrent loads take turns. The turn is awaited before the read, never after it: nothing may be appended
        # between reaching the end of the log and returning.
        await self._services.own_turns.enqueue()
        while True:
            if not self.is_led:
                raise LogUnreadable("the leadership is gone")
            result = self._partition.read(offset, READ_BYTES, min_one_batch=True, isolation=LOG_END, may_wait=False)
            if result.uncached is not None:
                await prefetch(self._services, [UncachedRead(self._partition, result.uncached)])
                continue
            if result.error_code:
                raise LogUnreadable(f"reading from offset {offset} failed with error {result.error_code}")
            if result.slice is None:
                return [], offset
            try:
                data = result.slice.read()
            finally:
                result.slice.release()
            return _parse_batches(data)


def _commit_error(code: int) -> int:
    """Returns 0 for an error about missing replicas, else the code: a committed record stays committed without them."""
    return 0 if code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND else code


def _parse_batches(data: bytes) -> tuple[list[StoredBatch], int]:
    batches: list[StoredBatch] = []
    next_offset = -1
    try:
        for position, header in layout.scan_headers(data):
            next_offset = header.next_offset
            records = read_keys_and_values(memoryview(data)[position : position + header.size_bytes])
            committed = None
            if header.is_control:
                key = records[0][1] if records else None
                committed = key is not None and marker_kind(key) == COMMIT
            batches.append(
                StoredBatch(
                    header.base_offset,
                    header.last_offset,
                    [] if header.is_control else [(at, key or b"", value) for at, key, value in records],
                    header.producer_id,
                    header.is_transactional,
                    committed,
                )
            )
    except (Malformed, Undecodable, Oversized) as fault:
        raise LogUnreadable(f"a batch before offset {next_offset} is damaged: {fault}") from fault
    return batches, next_offset
