"""Background runs for closing a month, started by operators: issuing its invoices, and computing its late usage.

The worker executes one run of each kind and month at a time. The state of a run is stored in the cache, only for the
operators' page. If it is lost, another run may be started, because issuing is idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from itertools import islice

import structlog
from celery import current_app
from django.core.cache import cache as shared_cache
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop
from kombu.exceptions import OperationalError

from billing.invoices import closing
from billing.invoices.adjustments import adjustments_of
from billing.invoices.closing import ClosingResult
from billing.invoices.periods import month_of
from billing.models import Invoice, InvoiceKind
from billing.rating.hours import NoPrice
from billing.rating.terms import Period
from brokers.infra.locks import Busy, exclusive_lock
from brokers.tasks import QUICK_PUBLISH
from tenants import access, audit
from tenants.actors import Actor, operator_actor
from tenants.cached_values import cacheable
from tenants.choices import Scope
from tenants.errors import Conflict
from tenants.models import Tenant, User

log = structlog.get_logger(__name__)

TASK = "billing.run_for_month"
ADD_INVOICE = "billing.add_invoice"
CACHE_TTL_S = 60 * 24 * 3_600
# A run without progress for this long is taken to be dead, and may be started again.
STALLED_AFTER = timedelta(minutes=5)
PROGRESS_INTERVAL = timedelta(seconds=1)
NAMED_MAX = 50


class RunKind(StrEnum):
    """Kind of a run. `LATE` computes what late usage would add to the next invoices, without storing it."""

    ISSUE = "issue"
    LATE = "late"


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class MonthRun:
    """State of a run: `done` of `total` tenants are processed; `by` is the operator who started it.

    `named` has (tenant slug, reason) of the first tenants whose invoice could not be issued, or (tenant slug, amount)
    of the first tenants with late usage. `named_in_all` is the number of all these tenants.
    """

    kind: RunKind
    month: str
    by: str
    state: RunState
    started_at: datetime
    noted_at: datetime
    done: int = 0
    total: int = 0
    issued: int = 0
    nothing_to_charge: int = 0
    named: tuple[tuple[str, str], ...] = ()
    named_in_all: int = 0

    def is_under_way(self, now: datetime) -> bool:
        return self.state in (RunState.QUEUED, RunState.RUNNING) and now - self.noted_at < STALLED_AFTER

    @property
    def percent(self) -> float:
        return 100.0 * self.done / self.total if self.total else 0.0


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class LastClosing:
    """Result of the last attempt, by an operator or the scheduled task, to issue the remaining invoices of a month.

    `waiting` has (tenant slug, reason) of the first tenants without an invoice, `waiting_in_all` the number of all.
    """

    at: datetime
    issued: int
    nothing_to_charge: int
    waiting: tuple[tuple[str, str], ...]
    waiting_in_all: int


def start(kind: RunKind, *, acting: Actor, month: datetime, now: datetime) -> MonthRun:
    """Queues a run for the worker.

    Raises:
        Conflict: the month is not over, or such a run is in progress.
    """
    access.require(acting, Scope.OPERATOR)
    period = month_of(month)
    if period.end > now:
        raise Conflict(gettext_noop("The month is not over yet."), code="period_not_over")
    name = f"{period.start:%Y-%m}"
    run_ = MonthRun(kind=kind, month=name, by=acting.label, state=RunState.QUEUED, started_at=now, noted_at=now)
    _claim(run_, now)
    with transaction.atomic():
        audit.record(acting, f"month.{kind}_started", ("month", name), None, {"month": name})
        transaction.on_commit(partial(enqueue, kind, name, acting.id))
    return run_


def enqueue(kind: RunKind, month: str, operator_id: str) -> None:
    """Sends the task by name, since the web process does not import the tasks.

    Where the broker is unreachable, the run is marked as failed for the page.
    """
    try:
        current_app.send_task(TASK, (str(kind), month, operator_id), retry=True, retry_policy=QUICK_PUBLISH)
    except OperationalError:
        log.warning("queue.unreachable", month=month)
        mark_failed(kind, month, timezone.now())


def _claim(run_: MonthRun, now: datetime) -> None:
    """Stores the run as queued. Raises `Conflict` if another one is in progress.

    After a run that ended, two concurrent claims may both succeed; `run` then executes only one of them at a time.
    """
    key = _key(run_.kind, run_.month)
    if shared_cache.add(key, run_, CACHE_TTL_S):
        return
    previous = last_run(run_.kind, run_.month)
    if previous is not None and previous.is_under_way(now):
        raise Conflict(gettext_noop("This runs already."), code="already_running")
    shared_cache.set(key, run_, CACHE_TTL_S)


def run(kind: RunKind, month: str, operator_id: str) -> None:
    """Executes a run in the worker as the operator who started it, if the operator still has the permission."""
    user = User.objects.filter(pk=operator_id, is_active=True).first()
    period = month_of(datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC))
    now = timezone.now()
    run_ = last_run(kind, month) or MonthRun(
        kind=kind, month=month, by="", state=RunState.QUEUED, started_at=now, noted_at=now
    )
    if user is None or not user.is_staff or not user.has_perm(ADD_INVOICE):
        log.warning("month_run_refused", kind=str(kind), month=month, user=operator_id)
        store(replace(run_, state=RunState.FAILED, noted_at=now))
        return
    run_ = replace(run_, state=RunState.RUNNING, noted_at=now)
    try:
        with exclusive_lock(_key(kind, month)):
            store(run_)
            finished_run = (
                _issue(run_, period, operator_actor(user))
                if kind is RunKind.ISSUE
                else _compute_late_usage(run_, period)
            )
    except Busy:
        return
    except Exception:
        mark_failed(kind, month, timezone.now())
        raise
    store(replace(finished_run, state=RunState.DONE, noted_at=timezone.now()))


def _issue(run_: MonthRun, period: Period, acting: Actor) -> MonthRun:
    result = closing.close_month(
        timezone.now().astimezone(UTC), acting=acting, period=period, progress=_ProgressRecorder(run_).record
    )
    store_closing(result, timezone.now())
    count = result.issued + result.nothing_to_charge + len(result.waiting)
    return replace(
        run_, done=count, total=count, issued=result.issued, nothing_to_charge=result.nothing_to_charge,
        named=_first_entries(result.waiting), named_in_all=len(result.waiting),
    )  # fmt: skip


def _compute_late_usage(run_: MonthRun, period: Period) -> MonthRun:
    """Computes the late usage of every tenant with an invoice of the month, for this and all earlier invoices."""
    invoiced = Invoice.objects.filter(kind=InvoiceKind.INVOICE, period_start=period.start).values("tenant_id")
    tenants = Tenant.objects.filter(pk__in=invoiced).order_by("pk")
    count, recorder = tenants.count(), _ProgressRecorder(run_)
    findings: dict[str, str] = {}
    for position, tenant in enumerate(tenants.iterator(chunk_size=500)):
        recorder.record(position, count)
        try:
            amount = sum((adjustment.line.amount for adjustment in adjustments_of(tenant)), Decimal(0))
        except NoPrice as error:
            findings[tenant.slug] = str(error)
            continue
        except Exception as failure:  # a failure of one tenant must not stop the others
            findings[tenant.slug] = closing.UNEXPECTED_FAILURE
            log.exception("late_usage_failed", tenant=tenant.pk, reason=type(failure).__name__)
            continue
        if amount:
            findings[tenant.slug] = f"{amount} {tenant.currency}"
    return replace(run_, done=count, total=count, named=_first_entries(findings), named_in_all=len(findings))


def _first_entries(findings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(islice(findings.items(), NAMED_MAX))


class _ProgressRecorder:
    """Records the progress of a run, at most once a second."""

    def __init__(self, run_: MonthRun) -> None:
        self._run = run_

    def record(self, done: int, total: int) -> None:
        now = timezone.now()
        if now - self._run.noted_at >= PROGRESS_INTERVAL or done == 0:
            self._run = replace(self._run, done=done, total=total, noted_at=now)
            store(self._run)


def mark_failed(kind: RunKind, month: str, now: datetime) -> None:
    """Marks a run as failed: it could not be queued, or ended with an error."""
    run_ = last_run(kind, month)
    if run_ is not None:
        store(replace(run_, state=RunState.FAILED, noted_at=now))


def store(run_: MonthRun) -> None:
    """Stores the state of a run for the page."""
    shared_cache.set(_key(run_.kind, run_.month), run_, CACHE_TTL_S)


def last_run(kind: RunKind, month: str) -> MonthRun | None:
    """Returns the last run of a month, finished or not; None if there is none or the cache lost it."""
    cached = shared_cache.get(_key(kind, month))
    return cached if isinstance(cached, MonthRun) else None


def store_closing(result: ClosingResult, now: datetime) -> None:
    """Stores the result of issuing for the page."""
    last_closing_result = LastClosing(
        at=now, issued=result.issued, nothing_to_charge=result.nothing_to_charge,
        waiting=_first_entries(result.waiting), waiting_in_all=len(result.waiting),
    )  # fmt: skip
    shared_cache.set(_closing_key(f"{result.period.start:%Y-%m}"), last_closing_result, CACHE_TTL_S)


def last_closing(month: str) -> LastClosing | None:
    cached = shared_cache.get(_closing_key(month))
    return cached if isinstance(cached, LastClosing) else None


def _key(kind: RunKind, month: str) -> str:
    return f"month:{month}:{kind}"


def _closing_key(month: str) -> str:
    return f"month:{month}:closing"
