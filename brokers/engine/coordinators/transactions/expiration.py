"""Time-driven decisions of a shard: overdue transactions are aborted, and unused ids deleted (TXN-17, TXN-18)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from brokers.engine.coordinators import limits
from brokers.engine.coordinators.result import CoordinatorResult, Now, StateRecord
from brokers.engine.coordinators.transactions.ending import markers_effect
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.registry import (
    TransactionRegistry,
    deletion_record,
    instance_of,
    record_of,
)
from brokers.engine.coordinators.transactions.states import AT_REST


class ExpirationTask(Enum):
    """Keys of the timers that drive expiration."""

    ABORT_OVERDUE = "abort-overdue"
    EXPIRE_IDS = "expire-ids"


def initial_timers(registry: TransactionRegistry, now: Now) -> list[tuple[object, int]]:
    """Returns the timers of a shard that was just loaded, as `(key, deadline in monotonic ms)`."""
    settings = registry.settings
    return [
        (ExpirationTask.ABORT_OVERDUE, now.monotonic_ms + settings.timeout_check_interval_ms),
        (ExpirationTask.EXPIRE_IDS, now.monotonic_ms + settings.id_expiration_check_interval_ms),
    ]


def abort_overdue(registry: TransactionRegistry, now: Now) -> CoordinatorResult:
    """Fences the producers whose transactions are overdue."""
    fenced = (
        metadata.with_fencing_epoch(now.wall_ms)
        for metadata in _resolved_metadata(registry)
        if metadata.is_overdue(now.wall_ms)
    )
    records: list[StateRecord] = []
    effects: list[object] = []
    record_bytes = 0
    for metadata in fenced:
        record = record_of(metadata)
        if records and not _fits_into_round(len(records), record_bytes + len(record.value or b"")):
            return _round_result(
                ExpirationTask.ABORT_OVERDUE, records, effects, now, 0, registry.settings.timeout_check_interval_ms
            )
        records.append(record)
        effects.append(markers_effect(registry, metadata))
        record_bytes += len(record.value or b"")
    interval_ms = registry.settings.timeout_check_interval_ms
    return _round_result(ExpirationTask.ABORT_OVERDUE, records, effects, now, interval_ms, interval_ms)


def expire_ids(registry: TransactionRegistry, now: Now) -> CoordinatorResult:
    """Deletes ids that were at rest for too long, and ids of deleted instances."""
    interval_ms = registry.settings.id_expiration_check_interval_ms
    records: list[StateRecord] = []
    for metadata in _resolved_metadata(registry):
        if metadata.state not in AT_REST or not _is_expired(registry, metadata, now):
            continue
        if not _fits_into_round(len(records), 0):
            return _round_result(ExpirationTask.EXPIRE_IDS, records, [], now, 0, interval_ms)
        records.append(deletion_record(metadata.transactional_id))
    return _round_result(ExpirationTask.EXPIRE_IDS, records, [], now, interval_ms, interval_ms)


def _is_expired(registry: TransactionRegistry, metadata: TransactionMetadata, now: Now) -> bool:
    if metadata.last_update_ms <= now.wall_ms - registry.settings.id_expiration_ms:
        return True
    instance_id = instance_of(metadata.transactional_id)
    if instance_id is None:
        return False
    is_old = metadata.last_update_ms <= now.wall_ms - limits.FULL_INSTANCE_EXPIRATION_MS
    return not registry.instance_exists(instance_id) or (is_old and not registry.may_add_transactional_id(instance_id))


def _resolved_metadata(registry: TransactionRegistry) -> Iterator[TransactionMetadata]:
    """Yields the metadata of ids without a pending record."""
    for _, entry in registry.entries():
        if entry.visible is not None and not entry.pending:
            yield entry.visible


def _fits_into_round(records: int, record_bytes: int) -> bool:
    return records < limits.RECORDS_PER_ROUND_MAX and record_bytes <= limits.ROUND_BYTES_MAX


def _round_result(
    task: ExpirationTask, records: list[StateRecord], effects: list[object], now: Now, delay_ms: int, retry_ms: int
) -> CoordinatorResult:
    return CoordinatorResult(
        records=records,
        effects=effects,
        timers=[(task, now.monotonic_ms + delay_ms)],
        on_refused=lambda _: CoordinatorResult(timers=[(task, now.monotonic_ms + retry_ms)]),
    )
