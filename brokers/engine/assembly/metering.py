"""Usage reports on their way into `__usage`, the partition of it that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from brokers.contract.usage import LEVEL_INTERVAL_MS, USAGE_TOPIC, UsageEvent
from brokers.engine.assembly.mmap_counters import MmapCounters, UnreportedUsage
from brokers.engine.clock import Clock
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.levels import InstanceLevels, LevelMeters
from brokers.engine.throttling.usage import report

log = structlog.get_logger(__name__)

# A batch stays below the default `max.message.bytes`. An event is about 150 bytes long; a client id of rare characters
# makes it several thousand.
EVENTS_PER_BATCH_MAX: Final = 4_000
EVENT_BYTES_PER_BATCH_MAX: Final = 524_288
_PRODUCE_VERSION = 11
ACKS_LEADER = 1


class Metering:
    """`broker_epoch` is that of the process's first registration: counters began with it, and a later session of the
    same process goes on with the same counters. `levels` is asked once a minute what each instance has.
    """

    def __init__(
        self,
        *,
        accountings: AccountingRegistry,
        kept: MmapCounters,
        table: PartitionTable,
        levels: Callable[[], Mapping[str, InstanceLevels]],
        clock: Clock,
        broker_id: int,
    ) -> None:
        self._accountings = accountings
        self._kept = kept
        self._unreported: list[UnreportedUsage] = []
        self._table = table
        self._levels = levels
        self._level_meters = LevelMeters(clock.monotonic_ms(), clock.now_ms())
        self._sampled_minute = clock.now_ms() // LEVEL_INTERVAL_MS
        self._clock = clock
        self._broker_id = broker_id
        self._sequence = 0
        self.broker_epoch: int | None = None

    async def on_registered(self, broker_epoch: int) -> None:
        if self.broker_epoch is None:
            self.broker_epoch = broker_epoch
            self._kept.registered(broker_epoch)

    def keep(self) -> None:
        """Call when the log directories are this process's own: counters made from here on outlive it."""
        self._unreported = self._kept.open(self._clock.now_ms())

    def finish(self) -> None:
        """The last report of a process that stops. What could not be said is left to the next one."""
        if self.broker_epoch is not None:
            self._sample_levels(self._clock.now_ms())
        if self.report():
            self._kept.discard()

    def report(self) -> bool:
        """Appends what changed. False: there was something to say and nowhere to say it; it is said next time."""
        if self.broker_epoch is None:
            return False
        now_ms = self._clock.now_ms()
        if self._unreported and not self._report_unreported(now_ms):
            return False
        if now_ms // LEVEL_INTERVAL_MS != self._sampled_minute:
            self._sample_levels(now_ms)
        made = report(
            self._accountings.usage(),
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            sequence=self._sequence + 1,
            at_ms=now_ms,
        )
        if not made.events:
            self._accountings.forget_retired()
            return True
        partition = self._partition()
        if partition is None:
            log.warning("usage_waits", reason="no partition of the usage topic is led here")
            return False
        if not self._append_all(partition, made.events, now_ms):
            return False
        self._sequence += 1
        made.confirm()
        self._kept.reported(self._sequence, now_ms)
        self._accountings.forget_retired()
        return True

    def _sample_levels(self, now_ms: int) -> None:
        self._sampled_minute = now_ms // LEVEL_INTERVAL_MS
        found = self._level_meters.sample(self._levels(), monotonic_ms=self._clock.monotonic_ms(), now_ms=now_ms)
        for instance_id, level, amount in found:
            self._accountings.of(instance_id).usage.counter("", "", "", level).add(amount)

    def _report_unreported(self, now_ms: int) -> bool:
        """What earlier incarnations had counted and not reported, in their names. Said twice it counts once."""
        partition = self._partition()
        if partition is None:
            return False
        while self._unreported:
            unreported = self._unreported[0]
            try:
                events = unreported.events(self._broker_id, now_ms)
                if not self._append_all(partition, events, now_ms):
                    return False
                unreported.discard()
            except OSError as error:  # the next run tries again
                log.error("usage_left_unreadable", file=str(unreported.counters), reason=str(error))
                events = []
            self._unreported.pop(0)
            if events:
                log.info("usage_of_an_earlier_run_reported", broker_epoch=events[0].broker_epoch, counters=len(events))
        return True

    def _append_all(self, partition: Partition, events: list[UsageEvent], now_ms: int) -> bool:
        return all(self._append(partition, records, now_ms) for records in _batches(events, now_ms))

    def _partition(self) -> Partition | None:
        for partition in self._table:
            if partition.topic == USAGE_TOPIC and partition.is_leader and not partition.offline:
                return partition
        return None

    def _append(self, partition: Partition, records: list[Record], now_ms: int) -> bool:
        batch = memoryview(build_batch(records))
        result = partition.append(batch, now_ms, acks=ACKS_LEADER, produce_version=_PRODUCE_VERSION)
        if result.error_code:
            log.warning("usage_waits", reason=f"append failed with error {result.error_code}")
        return not result.error_code


def _batches(events: Sequence[UsageEvent], now_ms: int) -> Iterator[list[Record]]:
    records: list[Record] = []
    size_bytes = 0
    for event in events:
        value = event.to_json()
        if len(records) == EVENTS_PER_BATCH_MAX or size_bytes + len(value) > EVENT_BYTES_PER_BATCH_MAX:
            if records:
                yield records
            records, size_bytes = [], 0
        records.append(Record(now_ms, event.instance_id.encode(), value))
        size_bytes += len(value)
    if records:
        yield records
