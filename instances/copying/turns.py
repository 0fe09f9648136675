"""One turn of a copy: records are read and written until its byte budget or the time of the round is used up.

Progress is stored after each chunk. Before a chunk is written, its marks are stored as `in_flight`. If the worker dies,
the next turn compares them with the end of the target's partition, and so determines how much of the chunk was stored.
Nothing is copied twice: if another client writes to the target meanwhile, the copy fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from instances import interfaces
from instances.copying.interfaces import Chunk, RecordLog, record_log
from instances.copying.limits import (
    COPIES_MAX,
    COPY_BATCH_OVERHEAD_BYTES,
    COPY_EVERY_S,
    COPY_RESOLVE_AFTER_S,
    COPY_STALLED_S,
)
from instances.copying.models import CopyState, TopicCopy
from instances.copying.pace import bytes_per_s, resolved_offset
from instances.lifecycle.phases import REACHABLE
from instances.topics import table
from instances.topics.presence import TopicNotReady, not_ready_if_pending
from tenants import audit
from tenants.actors import system_actor
from tenants.errors import Conflict, DomainError, Message, NotFound, OutcomeUnknown, Unavailable

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = "max.message.bytes"
TOPIC_GONE = "topic_gone"
OTHER_WRITER = "other_writer"
STALLED = "stalled"


def due_copies() -> Sequence[str]:
    """Returns the ids of running copies, the one whose last progress is oldest first."""
    rows = TopicCopy.objects.filter(state=CopyState.RUNNING).order_by("progress_at", "pk")
    return list(rows.values_list("pk", flat=True)[:COPIES_MAX])


def run_turn(copy_id: str, *, deadline_s: float, now: datetime) -> None:
    """Continues a copy until `time.monotonic()` is `deadline_s`. The caller holds its lock."""
    copy = TopicCopy.objects.select_related("instance__tenant").filter(pk=copy_id, state=CopyState.RUNNING).first()
    if copy is None:
        return
    try:
        if copy.instance.current_phase not in REACHABLE:
            raise Unavailable(Message(gettext_noop("The instance is %(phase)s."), phase=copy.instance.phase))
        _Turn(copy).run(deadline_s, now)
    except (Unavailable, TopicNotReady) as error:
        _wait(copy, error, now)
    except NotFound:
        _end(copy, CopyState.FAILED, TOPIC_GONE, "The topic that is copied, or its copy, was deleted or made again.")
    except DomainError as error:
        _end(copy, CopyState.FAILED, error.code, error.detail or error.title)


class _Turn:
    """The source and the target of a copy during one turn."""

    def __init__(self, copy: TopicCopy) -> None:
        self.copy = copy
        self._require_same(copy.source, "source_id")
        self._require_same(copy.target, "target_id")
        self.batch_bytes_max = self._batch_bytes_max()
        self.source: RecordLog = record_log.implementation(copy.instance_id, copy.source)
        self.target: RecordLog = record_log.implementation(copy.instance_id, copy.target)

    def run(self, deadline_s: float, now: datetime) -> None:
        if not self._resolve(now):
            return
        budget_bytes = bytes_per_s(self.copy.instance.bandwidth_mb_s) * COPY_EVERY_S
        while budget_bytes > 0 and time.monotonic() < deadline_s:
            partition = self._next_partition()
            if partition is None:
                _end(self.copy, CopyState.SUCCEEDED)
                return
            source_offset, stop, _ = self.copy.partitions[partition]
            chunk = self.source.read(int(partition), source_offset, stop, batch_bytes_max=self.batch_bytes_max)
            self._write(partition, chunk)
            budget_bytes -= max(chunk.read_bytes, 1)
            if not TopicCopy.objects.filter(pk=self.copy.pk, state=CopyState.RUNNING).exists():
                return

    def _require_same(self, topic: str, field: str) -> None:
        """Raises `NotFound` if the topic is not the one with which the copy began; the first turn stores its id."""
        with not_ready_if_pending(self.copy.instance, topic):
            topic_id = interfaces.data_plane.implementation.topic(self.copy.instance_id, topic).topic_id
        if not getattr(self.copy, field):
            setattr(self.copy, field, topic_id)
            self.copy.save(update_fields=[field])
        if getattr(self.copy, field) != topic_id:
            raise NotFound

    def _batch_bytes_max(self) -> int:
        """Returns the maximum size of batches that the target accepts, which may be less than that of the source."""
        with not_ready_if_pending(self.copy.instance, self.copy.target):
            entries = interfaces.data_plane.implementation.topic_config(self.copy.instance_id, self.copy.target)
        accepted_bytes = next((entry.value for entry in entries if entry.name == MAX_MESSAGE_BYTES), None)
        return max(1, int(accepted_bytes or 0) - COPY_BATCH_OVERHEAD_BYTES)

    def _next_partition(self) -> str | None:
        """Returns the partition of which the smallest share is copied, so that all of them advance together."""
        done_shares = {
            number: next_offset / stop
            for number, (next_offset, stop, _) in self.copy.partitions.items()
            if next_offset < stop
        }
        return min(done_shares, key=lambda number: (done_shares[number], int(number)), default=None)

    def _write(self, partition: str, chunk: Chunk) -> None:
        copy = self.copy
        if chunk.batches:
            marks = []
            records = 0
            for batch in chunk.batches:
                records += batch.records
                marks.append([records, batch.next_offset])
            at_ms = time.time_ns() // 1_000_000
            copy.in_flight = {"partition": partition, "at_ms": at_ms, "marks": marks}
            copy.save(update_fields=["in_flight"])
        _next_offset, _stop, written = copy.partitions[partition]
        for number, batch in enumerate(chunk.batches):
            try:
                first_offset = self.target.append(int(partition), batch.data)
            except OutcomeUnknown:
                raise
            except DomainError:
                self._advance(partition, chunk.batches[number - 1].next_offset if number else None, written)
                raise
            written = first_offset + batch.records
            copy.copied_records += batch.records
            copy.copied_bytes += len(batch.data)
        copy.skipped_records += chunk.skipped_records
        copy.missed_offsets += chunk.missed_offsets
        self._advance(partition, chunk.next_offset, written)

    def _resolve(self, now: datetime) -> bool:
        """Determines how much of a write without a response was stored. Returns False while it is unknown."""
        in_flight = self.copy.in_flight
        if in_flight is None:
            return True
        if now.timestamp() * 1_000 < in_flight["at_ms"] + COPY_RESOLVE_AFTER_S * 1_000:
            return False
        partition = in_flight["partition"]
        next_offset, _stop, written = self.copy.partitions[partition]
        end = self.target.end(int(partition))
        source_offset = resolved_offset(next_offset, written, end, in_flight["marks"])
        if source_offset is None:
            raise Conflict(
                "Another client wrote to the copy while an answer of the brokers was lost, so it is not known what is"
                " missing. Delete the copy, and clone the topic again.",
                code=OTHER_WRITER,
            )
        self.copy.copied_records += end - written
        self._advance(partition, source_offset, end)
        return True

    def _advance(self, partition: str, source_offset: int | None, written: int) -> None:
        """Stores progress up to an offset of the source (None: unchanged), and that no write awaits a response."""
        copy = self.copy
        next_offset, stop, _ = copy.partitions[partition]
        copy.partitions[partition] = [next_offset if source_offset is None else source_offset, stop, written]
        copy.in_flight, copy.progress_at = None, timezone.now()
        copy.error = copy.error_code = ""
        copy.save(
            update_fields=[
                "partitions", "in_flight", "progress_at", "copied_records", "copied_bytes", "skipped_records",
                "missed_offsets", "error", "error_code",
            ]
        )  # fmt: skip


def _wait(copy: TopicCopy, error: DomainError, now: datetime) -> None:
    """Stores the reason why a copy waits; fails the copy if it has waited too long."""
    if now - copy.progress_at > timedelta(seconds=COPY_STALLED_S):
        _end(copy, CopyState.FAILED, STALLED, error.detail or error.title)
    else:
        TopicCopy.objects.filter(pk=copy.pk).update(error_code=error.code, error=error.detail or error.title)


@transaction.atomic
def _end(copy: TopicCopy, state: CopyState, code: str = "", error: str = "") -> None:
    values = {"state": state, "finished_at": timezone.now(), "error_code": code, "error": error}
    if not TopicCopy.objects.filter(pk=copy.pk, state=CopyState.RUNNING).update(**values):
        return
    acting = system_actor("topic copies", copy.instance.tenant)
    action = "topic.copied" if state == CopyState.SUCCEEDED else "topic.copy_failed"
    after = {"from": copy.source, "messages": copy.copied_records, **({"code": code} if code else {})}
    target = ("topic", f"{copy.instance_id}/{copy.target}")
    audit.record(acting, action, target, None, after, tenant=copy.instance.tenant)
    transaction.on_commit(lambda: table.invalidate(copy.instance_id))
