"""Usage reports of this broker, written to the partition of `__usage` that it leads.

A report is written in steps of a few milliseconds: an instance has up to 10,000 counters, and a client can change all
of them between two reports. `usage.record.version` sets the version of the records, which the pipeline must support.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Final

import structlog

from brokers.contract import usage_columns
from brokers.contract.usage import (
    LEVEL_INTERVAL_MS,
    RECORD_VERSION_SETTING,
    USAGE_TOPIC,
    VERSION,
    CounterValue,
    ReportHead,
    UsageEvent,
)
from brokers.engine.assembly.mmap_counters import MmapCounters, UnreportedUsage
from brokers.engine.clock import Clock
from brokers.engine.errors import SettingsWrong
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.scheduling.turn_queue import TurnQueue, run_to_end
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.levels import InstanceLevels, LevelMeters
from brokers.engine.throttling.usage import VALUES_PER_PART_MAX, reports

log = structlog.get_logger(__name__)

# A batch stays below the default `max.message.bytes`. An event takes about 150 bytes; with a client id of rare
# characters it takes several thousand. A record of columns has one name of each counter at most, and
# `NAME_CHARACTERS_PER_PART_MAX` of six bytes.
EVENTS_PER_BATCH_MAX: Final = 100
EVENT_BYTES_PER_BATCH_MAX: Final = 524_288
_VERSIONS: Final = (str(VERSION), str(usage_columns.VERSION))
_PRODUCE_VERSION = 11
# Pause after an attempt to read the files of earlier processes failed: the disk may keep the event loop waiting.
UNREPORTED_RETRY_MS: Final = 60_000
ACKS_LEADER = 1


class Metering:
    """Writes usage reports. `broker_epoch` is the epoch of the process's first registration: its counters began then,
    and continue in later sessions of the process. `levels` is called once a minute for the levels of instances.
    `charge` is called with the event loop time that an instance's events took: instance id, start and end in seconds.
    """

    def __init__(
        self,
        *,
        accountings: AccountingRegistry,
        counter_files: MmapCounters,
        table: PartitionTable,
        levels: Callable[[], Mapping[str, InstanceLevels]],
        charge: Callable[[str, float, float], object],
        turns: TurnQueue,
        clock: Clock,
        broker_id: int,
        record_version: int = VERSION,
    ) -> None:
        self._accountings = accountings
        self._counter_files = counter_files
        self._unreported: list[UnreportedUsage] = []
        self._unreported_due_ms = 0
        self._table = table
        self._levels = levels
        self._level_meters = LevelMeters(clock.monotonic_ms(), clock.now_ms())
        self._sampled_minute = clock.now_ms() // LEVEL_INTERVAL_MS
        self._charge = charge
        self._turns = turns
        self._clock = clock
        self._broker_id = broker_id
        self._sequence = 0
        self.broker_epoch: int | None = None
        self.record_version = record_version

    async def on_registered(self, broker_epoch: int) -> None:
        if self.broker_epoch is None:
            self.broker_epoch = broker_epoch
            self._counter_files.store_broker_epoch(broker_epoch)

    def open_counter_files(self) -> None:
        """Opens the counter files on disk, which outlive the process. Call it when the log directories are locked."""
        self._unreported = self._counter_files.open(self._clock.now_ms())

    def finish(self) -> None:
        """Writes the last report of a stopping process. If that fails, the next process reports the rest."""
        if self.broker_epoch is not None:
            self._sample_levels(self._clock.now_ms())
        if run_to_end(self._steps()):
            self._counter_files.discard()

    async def report(self) -> bool:
        """Appends the changed counters. Returns False if the topic is not writable; the next report then has them."""
        return await self._turns.run(self._steps())

    def _steps(self) -> Generator[None, None, bool]:
        """Yields between the steps of a report, and returns its result. New usage is in this or the next report."""
        if self.broker_epoch is None:
            return False
        now_ms = self._clock.now_ms()
        if self._unreported and self._clock.monotonic_ms() >= self._unreported_due_ms:
            for unreported in tuple(self._unreported):
                if not (yield from self._report_unreported(unreported, now_ms)):
                    return False
            self._unreported_due_ms = self._clock.monotonic_ms() + UNREPORTED_RETRY_MS
        if now_ms // LEVEL_INTERVAL_MS != self._sampled_minute:
            self._sample_levels(now_ms)
        head = ReportHead(self._broker_id, self.broker_epoch, self._sequence + 1, now_ms)
        version = self.record_version
        has_values = False
        began_s = perf_counter()
        for part in reports(self._accountings.usage(), head, _values_per_part_max(version)):
            if part.values:
                if not self._write(head, part.values, version):
                    return False
                part.confirm()
                has_values = True
                self._charge_instances(part.values, began_s, perf_counter())
            yield
            began_s = perf_counter()
        if has_values:
            self._sequence += 1
            self._counter_files.store_last_report(self._sequence, now_ms)
        self._accountings.forget_retired()
        return True

    def _charge_instances(self, values: Sequence[CounterValue], began_s: float, ended_s: float) -> None:
        """Charges each instance with its part of the time."""
        value_s = (ended_s - began_s) / len(values)
        for instance_id, count in Counter(value.instance_id for value in values).items():
            self._charge(instance_id, began_s, began_s + count * value_s)
            began_s += count * value_s

    def _sample_levels(self, now_ms: int) -> None:
        self._sampled_minute = now_ms // LEVEL_INTERVAL_MS
        events = self._level_meters.sample(self._levels(), monotonic_ms=self._clock.monotonic_ms(), now_ms=now_ms)
        for instance_id, level, amount in events:
            self._accountings.get_or_create(instance_id).usage.counter("", "", "", level).add(amount)

    def _report_unreported(self, unreported: UnreportedUsage, now_ms: int) -> Generator[None, None, bool]:
        """Reports the unreported usage of an earlier process of this broker, under that process's epoch and sequence;
        the pipeline counts a repeated report once. Returns False if the topic is not writable. Files that cannot be
        read now are tried again later.
        """
        broker_epoch, count = 0, 0
        try:
            for events in split_into_batches(unreported.events(self._broker_id, now_ms), EVENTS_PER_BATCH_MAX):
                head = ReportHead(events[0].broker_id, events[0].broker_epoch, events[0].sequence, events[0].at_ms)
                if not self._write(head, [event.counter for event in events], self.record_version):
                    return False
                broker_epoch, count = head.broker_epoch, count + len(events)
                yield
            unreported.discard()
            self._unreported.remove(unreported)
        except OSError as error:
            log.error("usage_left_unreadable", file=str(unreported.counters), reason=str(error))
        except ValueError as error:
            log.error("usage_left_unreadable", file=str(unreported.counters), reason=str(error))
            self._set_aside(unreported)
        if count:
            log.info("usage_of_an_earlier_run_reported", broker_epoch=broker_epoch, counters=count)
        return True

    def _set_aside(self, unreported: UnreportedUsage) -> None:
        try:
            unreported.set_aside()
        except OSError as error:
            log.error("usage_left_unreadable", file=str(unreported.counters), reason=str(error))
        self._unreported.remove(unreported)

    def _write(self, head: ReportHead, values: Sequence[CounterValue], version: int) -> bool:
        """Appends the values of a report. Returns False if the topic is not writable."""
        partition, now_ms = self._partition(), self._clock.now_ms()
        if partition is None:
            return False
        if version == VERSION:
            events = [UsageEvent.of(head, value) for value in values]
            return all(self._append(partition, records, now_ms) for records in _batches(events, now_ms))
        return self._append(partition, [Record(now_ms, None, usage_columns.to_record(head, values))], now_ms)

    def _partition(self) -> Partition | None:
        for partition in self._table:
            if partition.topic == USAGE_TOPIC and partition.is_leader and not partition.offline:
                return partition
        log.warning("usage_append_delayed", reason="no partition of the usage topic is led here")
        return None

    def _append(self, partition: Partition, records: list[Record], now_ms: int) -> bool:
        """Appends one batch to a partition of the usage topic. Returns False if the append failed."""
        batch = memoryview(build_batch(records))
        result = partition.append(batch, now_ms, acks=ACKS_LEADER, produce_version=_PRODUCE_VERSION)
        if result.error_code:
            log.warning("usage_append_delayed", reason=f"append failed with error {result.error_code}")
        return not result.error_code


def _values_per_part_max(version: int) -> int:
    return VALUES_PER_PART_MAX if version == VERSION else usage_columns.COUNTERS_PER_RECORD_MAX


def record_version(effective: Mapping[str, str]) -> int:
    """Returns the version of usage records to write, from the effective broker settings. Raises SettingsWrong."""
    value = effective.get(RECORD_VERSION_SETTING, str(VERSION))
    if value not in _VERSIONS:
        raise SettingsWrong(f"{RECORD_VERSION_SETTING} is one of {', '.join(_VERSIONS)}, not {value!r}")
    return int(value)


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


def split_into_batches(events: Iterator[UsageEvent], count: int) -> Iterator[list[UsageEvent]]:
    """Yields the events in lists of up to `count`; those before a ValueError of `events`, too."""
    chunk: list[UsageEvent] = []
    try:
        for event in events:
            chunk.append(event)
            if len(chunk) == count:
                yield chunk
                chunk = []
    except ValueError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
