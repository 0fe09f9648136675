"""Comparison of an invoice with the lake in the worker, because reading the lake takes too long for a request.

The installation replays one invoice at a time. State and result of a replay are stored in the cache only. If they are
lost, the replay can be started again; no invoice depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Final

import structlog
from celery import current_app
from django.core.cache import cache as shared_cache
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop
from kombu.exceptions import OperationalError

from billing.invoices.recompute import (
    Difference,
    Recomputation,
    ReplayOutcome,
    compare_with_lake,
    lake_covers,
    rows_to_read,
)
from billing.invoices.snapshot import from_json
from billing.lake.replay import LakeBroken
from billing.models import Invoice
from billing.rating.hours import NoPrice
from brokers.infra.locks import Busy, exclusive_lock
from brokers.tasks import QUICK_PUBLISH
from tenants import access, audit
from tenants.actors import Actor
from tenants.cached_values import cacheable
from tenants.choices import Scope
from tenants.errors import Conflict
from tenants.wording import localized

log = structlog.get_logger(__name__)

TASK: Final = "billing.replay_invoice"
LOCK: Final = "replay of an invoice"
# A result is cached for `CACHE_TTL_S`. An invoice can be replayed again `REPEAT_INTERVAL_MIN` after its last replay.
CACHE_TTL_S: Final = 24 * 3_600
REPEAT_INTERVAL_MIN: Final = timedelta(minutes=10)
# A replay without progress for this long is taken to be dead.
STALLED_AFTER: Final = timedelta(minutes=5)
PROGRESS_INTERVAL: Final = timedelta(seconds=1)
# The installation replays one invoice at a time; tasks of other replays are retried after this time.
BUSY_RETRY_S: Final = 5
DIFFERENCES_KEPT_MAX: Final = 1_000


class ReplayState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceReplay:
    """State of the replay of one invoice: `rows` of `total` rows of the lake are read.

    `differences` has at most `DIFFERENCES_KEPT_MAX` entries: instance id, plan, meter, invoiced and recomputed amount.
    `differences_in_all` is the number of all differences. `error` is shown to the tenant.
    """

    invoice_id: str
    state: str
    started_at: datetime
    noted_at: datetime
    rows: int = 0
    total: int = 0
    differences: tuple[tuple[str, str, str, str, str], ...] = ()
    differences_in_all: int = 0
    error: str = ""

    def is_under_way(self, now: datetime) -> bool:
        return self.state in (ReplayState.QUEUED, ReplayState.RUNNING) and now - self.noted_at < STALLED_AFTER

    @property
    def percent(self) -> float:
        if self.state == ReplayState.DONE:
            return 100.0
        return min(99.0, 100.0 * self.rows / self.total) if self.total else 0.0

    def stored_differences(self) -> list[Difference]:
        """Returns the stored differences."""
        return [
            Difference(
                source="lake", instance_id=instance_id, plan=plan, meter=meter, invoiced=Decimal(invoiced),
                recomputed=Decimal(recomputed),
            )
            for instance_id, plan, meter, invoiced, recomputed in self.differences
        ]  # fmt: skip


def last_replay(invoice: Invoice) -> InvoiceReplay | None:
    """Returns the last replay of an invoice, finished or not."""
    cached = shared_cache.get(_key(invoice.pk))
    return cached if isinstance(cached, InvoiceReplay) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStatus:
    """State of the replay that belongs to a recomputation, for pages and REST.

    `differences_omitted` counts the differences beyond the first `DIFFERENCES_KEPT_MAX`, which are not stored.
    """

    state: str
    percent: float = 0.0
    noted_at: datetime | None = None
    error: str = ""
    differences_omitted: int = 0

    @property
    def is_under_way(self) -> bool:
        return self.state in (ReplayState.QUEUED, ReplayState.RUNNING)


NOT_STARTED: Final = "not_started"


def merge_replay(invoice: Invoice, result: Recomputation, now: datetime) -> tuple[Recomputation, ReplayStatus]:
    """Returns the recomputation and the state of its replay.

    If the recomputation skipped the lake and the worker has replayed the invoice, the worker's differences are added.
    """
    if result.replay is not ReplayOutcome.TOO_LARGE:
        percent = 100.0 if result.replay is ReplayOutcome.DONE else 0.0
        return result, ReplayStatus(state=result.replay, percent=percent)
    replay = last_replay(invoice)
    if replay is not None and replay.state == ReplayState.DONE:
        result = replace(
            result, replay=ReplayOutcome.DONE, differences=[*result.differences, *replay.stored_differences()]
        )
    return result, replay_status(invoice, now)


def replay_status(invoice: Invoice, now: datetime) -> ReplayStatus:
    """Returns the state of the last replay of an invoice in the worker."""
    replay = last_replay(invoice)
    if replay is None:
        return ReplayStatus(state=NOT_STARTED)
    if replay.state in (ReplayState.QUEUED, ReplayState.RUNNING) and not replay.is_under_way(now):
        replay = replace(replay, state=ReplayState.FAILED, error=_NO_PROGRESS)
    return ReplayStatus(
        state=replay.state, percent=replay.percent, noted_at=replay.noted_at, error=localized(replay.error),
        differences_omitted=replay.differences_in_all - len(replay.differences),
    )  # fmt: skip


@transaction.atomic
def start(*, acting: Actor, invoice: Invoice, now: datetime) -> InvoiceReplay:
    """Queues the replay of an invoice that was fetched for the actor. A tenant has one at a time.

    Raises:
        Conflict: there is nothing to replay, one is under way, or the invoice was replayed lately.
    """
    access.require(acting, Scope.BILLING_READ)
    if not invoice.inputs or not lake_covers(from_json(invoice.inputs)):
        raise Conflict(gettext_noop("The lake has no reports of this period."), code="not_covered")
    previous = last_replay(invoice)
    if previous is not None and previous.state == ReplayState.DONE and now - previous.noted_at < REPEAT_INTERVAL_MIN:
        raise Conflict(gettext_noop("It was replayed a few minutes ago."), code="replayed_lately")
    tenant_replay = shared_cache.get(_tenant_key(invoice))
    if isinstance(tenant_replay, InvoiceReplay) and tenant_replay.is_under_way(now):
        raise Conflict(gettext_noop("An invoice is being replayed. Wait until it has ended."), code="already_running")
    queued = InvoiceReplay(invoice_id=invoice.pk, state=ReplayState.QUEUED, started_at=now, noted_at=now)
    audit.record(acting, "invoice.replayed", invoice)
    transaction.on_commit(partial(_enqueue, invoice, queued))
    return queued


def enqueue(invoice_id: str) -> None:
    """Sends the task by name, since the web process does not import the tasks."""
    current_app.send_task(TASK, (invoice_id,), retry=True, retry_policy=QUICK_PUBLISH)


def _enqueue(invoice: Invoice, queued: InvoiceReplay) -> None:
    _store(invoice, queued)
    try:
        enqueue(invoice.pk)
    except OperationalError:
        log.warning("queue.unreachable", invoice=invoice.pk)
        _store(invoice, replace(queued, state=ReplayState.FAILED, error=_NO_WORKER))


_NO_PROGRESS: Final = gettext_noop("The replay has ended without a result. Start it again.")
_NO_WORKER: Final = gettext_noop("The worker cannot be reached. Start it again later.")


def run(invoice_id: str) -> None:
    """Replays an invoice in the worker.

    Raises:
        Busy: another invoice is being replayed.
    """
    invoice = Invoice.objects.select_related("tenant").get(pk=invoice_id)
    now = timezone.now()
    replay = last_replay(invoice) or InvoiceReplay(
        invoice_id=invoice.pk, state=ReplayState.QUEUED, started_at=now, noted_at=now
    )
    try:
        with exclusive_lock(LOCK):
            finished_replay = _execute(invoice, replace(replay, state=ReplayState.RUNNING, noted_at=now))
    except Busy:
        _store(invoice, replace(replay, noted_at=now))
        raise
    except (NoPrice, LakeBroken, OSError) as error:
        log.error("invoice_not_replayed", invoice=invoice.pk, reason=str(error))
        text = str(error) if isinstance(error, NoPrice) else gettext_noop("The lake cannot be read.")
        finished_replay = replace(replay, state=ReplayState.FAILED, noted_at=timezone.now(), error=text)
    except Exception:
        _store(invoice, replace(replay, state=ReplayState.FAILED, noted_at=timezone.now()))
        raise
    _store(invoice, finished_replay)


def _execute(invoice: Invoice, replay: InvoiceReplay) -> InvoiceReplay:
    _store(invoice, replay)
    inputs = from_json(invoice.inputs or {})
    recorder = _ProgressRecorder(invoice, replace(replay, total=rows_to_read(inputs)))
    differences = compare_with_lake(invoice, inputs, recorder.record)
    stored_differences = tuple(
        (
            difference.instance_id,
            difference.plan,
            difference.meter,
            str(difference.invoiced),
            str(difference.recomputed),
        )
        for difference in differences[:DIFFERENCES_KEPT_MAX]
    )
    return replace(
        recorder.replay, state=ReplayState.DONE, noted_at=timezone.now(), differences=stored_differences,
        differences_in_all=len(differences),
    )  # fmt: skip


class _ProgressRecorder:
    """Stores the progress of a replay for pages and REST, at most once every `PROGRESS_INTERVAL`."""

    def __init__(self, invoice: Invoice, replay: InvoiceReplay) -> None:
        self._invoice = invoice
        self.replay = replay

    def record(self, rows: int) -> None:
        now = timezone.now()
        if now - self.replay.noted_at >= PROGRESS_INTERVAL:
            self.replay = replace(self.replay, rows=rows, noted_at=now)
            _store(self._invoice, self.replay)


def _store(invoice: Invoice, replay: InvoiceReplay) -> None:
    shared_cache.set(_key(invoice.pk), replay, CACHE_TTL_S)
    shared_cache.set(_tenant_key(invoice), replace(replay, differences=()), CACHE_TTL_S)


def _key(invoice_id: str) -> str:
    return f"invoice:replay:{invoice_id}"


def _tenant_key(invoice: Invoice) -> str:
    return f"tenant:replay:{invoice.tenant_id}"
