"""Evaluation of all enabled alert rules in batches by instance.

The figures of a batch are read first. Then its rules are locked, evaluated and written in one transaction together with
their notifications. Concurrent evaluations are safe, because locked rules are skipped; the next evaluation continues
from the stored state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import structlog
from django.db import connection, transaction
from django.db.models import F

from brokers.infra.locks import Busy, exclusive_lock
from notifications.alerts import figures, firings
from notifications.alerts.figures import Figures
from notifications.alerts.firings import Fired, Resolved
from notifications.limits import (
    DELETE_BATCH_SIZE,
    EVALUATION_DURATION_MAX_S,
    FIRINGS_KEPT_FOR,
    RULES_PER_BATCH,
    RULES_PER_EVALUATION_MAX,
)
from notifications.models import AlertFiring, AlertRule, FiringEnd
from tenants.alert_state import AlertStatus, Transition, advance, transition
from tenants.containment import contained

log = structlog.get_logger(__name__)

LOCK = "alert rules"

_WRITE = """
UPDATE billing_alertrule AS rule
SET state = new.state, state_since = new.since, held_ms = new.held_ms, value = new.value,
    is_unknown = new.is_unknown, evaluated_at = new.evaluated_at, fired_at = new.fired_at
FROM unnest(%s::text[], %s::text[], %s::timestamptz[], %s::bigint[], %s::bigint[], %s::bool[], %s::timestamptz[],
            %s::timestamptz[])
     AS new(id, state, since, held_ms, value, is_unknown, evaluated_at, fired_at)
WHERE rule.id = new.id
"""


@dataclass(slots=True, kw_only=True)
class EvaluationSummary:
    """Counts of one evaluation: evaluated rules, and of these newly firing, resolved and unknown ones."""

    evaluated: int = 0
    fired: int = 0
    resolved: int = 0
    unknown: int = 0


def evaluate(now: datetime) -> EvaluationSummary:
    """Evaluates all rules, the least recently evaluated first. Only one evaluation runs at a time."""
    summary = EvaluationSummary()
    try:
        with exclusive_lock(LOCK):
            _run(summary, now)
    except Busy:
        log.info("alert_rules_busy")
    return summary


def delete_old_firings(now: datetime) -> int:
    """Deletes firings that ended long ago and returns their number."""
    expired = AlertFiring.objects.filter(resolved_at__lt=now - FIRINGS_KEPT_FOR).values_list("pk", flat=True)
    return firings.delete(expired[:DELETE_BATCH_SIZE])


def _run(summary: EvaluationSummary, now: datetime) -> None:
    deadline_s = time.monotonic() + EVALUATION_DURATION_MAX_S
    for batch in _batches():
        if time.monotonic() > deadline_s:
            log.warning("alert_rules_late", evaluated=summary.evaluated)
            return
        try:
            _evaluate(batch, summary, now)
        except Exception:
            log.warning("alert_rules_retried", rules=len(batch), exc_info=True)
            _evaluate_by_instance(batch, summary, now)


def _evaluate(batch: Sequence[str], summary: EvaluationSummary, now: datetime) -> None:
    read_figures = figures.read(list(AlertRule.objects.filter(pk__in=batch)), now)
    with transaction.atomic():
        _evaluate_rules(batch, read_figures, summary, now)


def _evaluate_by_instance(batch: Sequence[str], summary: EvaluationSummary, now: datetime) -> None:
    """Evaluates the rules of a failed batch by instance, so that an error of one instance does not block the others."""
    rows = AlertRule.objects.filter(pk__in=batch).order_by("instance_id", "cluster_id", "pk")
    for _subject, rules in groupby(rows.values_list("pk", "instance_id", "cluster_id"), key=lambda row: row[1:]):
        ids = [row[0] for row in rules]
        with contained("alert_rules_failed", rules=len(ids), rule=ids[0]):
            _evaluate(ids, summary, now)


def _batches() -> Iterator[list[str]]:
    """Yields ids of rules in batches, the least recently evaluated first.

    Rules of one instance that were last evaluated together are in one batch, so that its figures are read once.
    """
    enabled_rules = AlertRule.objects.filter(is_enabled=True).order_by(
        F("evaluated_at").asc(nulls_first=True), "instance_id", "cluster_id", "pk"
    )
    rows = enabled_rules.values_list("pk", "instance_id", "cluster_id")[:RULES_PER_EVALUATION_MAX]
    batch: list[str] = []
    for _subject, rules in groupby(rows, key=lambda row: row[1:]):
        batch += [row[0] for row in rules]
        if len(batch) >= RULES_PER_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _evaluate_rules(batch: Sequence[str], read_figures: Figures, summary: EvaluationSummary, now: datetime) -> None:
    rules = (
        AlertRule.objects.filter(pk__in=batch, is_enabled=True)
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .select_related("tenant", "instance", "cluster")
        .order_by("pk")
    )
    evaluated_rules: list[tuple[AlertRule, AlertStatus]] = []
    fired: list[Fired] = []
    resolved: list[Resolved] = []
    for rule in rules:
        previous_status = rule.status
        status = advance(previous_status, rule.terms, read_figures.sample_of(rule), now)
        if status == previous_status:
            continue
        evaluated_rules.append((rule, status))
        summary.evaluated += 1
        summary.unknown += status.is_unknown
        change_kind = transition(previous_status, status)
        if change_kind is Transition.FIRED:
            assert status.value is not None
            fired.append(Fired(rule, status.value, previous_status.since or now))
        elif change_kind is Transition.RESOLVED:
            resolved.append(Resolved(rule, FiringEnd.RESOLVED, status.value))
    firings.begin(fired, now)
    firings.end(resolved, now)
    summary.fired += len(fired)
    summary.resolved += len(resolved)
    _write_states(evaluated_rules)


def _write_states(evaluated_rules: Sequence[tuple[AlertRule, AlertStatus]]) -> None:
    """Writes the evaluated states without a new version, since no setting of the tenant changed."""
    if not evaluated_rules:
        return
    states = [status for _rule, status in evaluated_rules]
    columns = (
        [rule.pk for rule, _status in evaluated_rules],
        [str(status.state) for status in states],
        [status.since for status in states],
        [int(status.observed_for.total_seconds() * 1_000) for status in states],
        [status.value for status in states],
        [status.is_unknown for status in states],
        [status.evaluated_at for status in states],
        [status.fired_at for status in states],
    )
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, columns)
