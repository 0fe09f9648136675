"""The audit topic on this broker: appends to a partition that it leads, and metrics of the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import structlog

from brokers.contract.audit import AUDIT_TOPIC
from brokers.engine.clock import Clock
from brokers.engine.handlers.audit_trail import AuditTrail
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.telemetry.metrics import Sample
from brokers.engine.throttling.accounting import AccountingRegistry

log = structlog.get_logger(__name__)

_PRODUCE_VERSION: Final = 11
_ACKS_LEADER: Final = 1


class AuditLog:
    """Appends audit events to a partition of the audit topic that this broker leads; implements
    `handlers.audit_trail.Append`. An accepted event is in the log file and survives a crash of the process.
    """

    def __init__(self, table: PartitionTable, accountings: AccountingRegistry, clock: Clock) -> None:
        self._table = table
        self._accountings = accountings
        self._clock = clock
        self._index: int | None = None
        self._has_failed = False

    def __call__(self, instance_id: str, value: bytes) -> bool:
        partition = self._partition()
        if partition is None:
            return False
        now_ms = self._clock.now_ms()
        batch = build_batch([Record(now_ms, instance_id.encode(), value)])
        result = partition.append(memoryview(batch), now_ms, acks=_ACKS_LEADER, produce_version=_PRODUCE_VERSION)
        if result.error_code:
            if not self._has_failed:
                log.warning("audit_append_failed", reason=f"append failed with error {result.error_code}")
            self._has_failed = True
            return False
        self._has_failed = False
        # Charged like coordinator writes. A deleted instance is not charged.
        accounting = self._accountings.get(instance_id)
        if accounting is not None:
            accounting.shares.charge_state(len(batch), self._clock.monotonic_ms())
        return True

    def _partition(self) -> Partition | None:
        if self._index is not None:
            partition = self._table.get(AUDIT_TOPIC, self._index)
            if partition is not None and partition.is_leader and not partition.offline:
                return partition
        self._index = None
        for partition in self._table:
            if partition.topic == AUDIT_TOPIC and partition.is_leader and not partition.offline:
                self._index = partition.index
                return partition
        return None


def samples(trail: AuditTrail) -> Iterator[Sample]:
    text = "Events for instances' audit logs: written, merged with others, or lost while there was nowhere to write."
    for result, count in asdict(trail.counts).items():
        yield Sample("penstock_broker_audit_events", "counter", text, count, (("result", result),))
    text = "Events for the audit log that wait until this broker leads a partition of the audit topic."
    yield Sample("penstock_broker_audit_events_waiting", "gauge", text, trail.waiting)
