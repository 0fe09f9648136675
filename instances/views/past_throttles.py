"""Context of "Why was I slow?", the causes of throttling in the past: an hour by minutes, a day by quarters of an hour,
a week by hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from instances.limits import THROTTLED_MINUTES_KEPT
from instances.metrics.throttle_history import PastCause, past_causes
from instances.models import Instance
from instances.views.throttle_texts import client_name, limit_text, rule_title, scope_text
from tenants.formatting import quota_limit

MS_PER_S = 1_000
# Span and step in seconds.
SPANS = {"hour": (3_600, 60), "day": (86_400, 900), "week": (7 * 86_400, 3_600)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """Texts about a cause of throttling in a step. `is_first`: it is the first cause of its step.

    `end_ms` is the end of the one-hour view to which its start time links.
    """

    cause: PastCause
    title: str
    level: str
    limit: str
    clients: tuple[str, ...]
    end_ms: int
    is_first: bool


def past_context(query: QueryDict, instance: Instance) -> dict[str, object]:
    """Returns the causes of throttling in the `span` of a query, which ends now or at `until` (ms since 1970)."""
    span = query.get("span", "")
    span = span if span in SPANS else "hour"
    length_s, step_s = SPANS[span]
    now = timezone.now()
    until = _instant(query.get("until", ""))
    end = max(min(until, now) if until else now, now - THROTTLED_MINUTES_KEPT)
    start = end - timedelta(seconds=length_s)
    causes, reaches_to = past_causes(instance, start=start, end=end, step_s=step_s)
    later = end + timedelta(seconds=length_s)
    return {
        "span": span,
        "spans": (("hour", _("1 hour")), ("day", _("24 h")), ("week", _("7 days"))),
        "start": start,
        "end": end,
        "is_now": until is None or until >= now,
        "earlier_ms": _ms(start) if start > now - THROTTLED_MINUTES_KEPT else None,
        "later_ms": _ms(later) if later < now else None,
        "past": _rows(causes, step_s),
        "leads_on": span != "hour",
        "reaches_to": reaches_to,
    }


def _rows(causes: list[PastCause], step_s: int) -> list[CauseRow]:
    result = []
    previous_start: datetime | None = None
    for cause in causes:
        result.append(
            CauseRow(
                cause=cause,
                title=rule_title(cause.kind, cause.quota, cause.entity, is_past=True),
                level=scope_text(cause.kind, cause.quota, cause.level, is_past=True),
                limit=limit_text(cause.kind, cause.quota) or quota_limit(cause.whole_limit_per_s, cause.quota),
                clients=tuple(client_name(user, client_id) for user, client_id in cause.clients),
                end_ms=_ms(cause.start + timedelta(seconds=max(step_s, SPANS["hour"][0]))),
                is_first=cause.start != previous_start,
            )
        )
        previous_start = cause.start
    return result


def _instant(text: str) -> datetime | None:
    """Returns the instant of a text with milliseconds since 1970; None beyond the range of datetime."""
    if not (text.isascii() and text.isdigit() and len(text) < 15):
        return None
    return datetime.fromtimestamp(int(text) / MS_PER_S, UTC)


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * MS_PER_S)
