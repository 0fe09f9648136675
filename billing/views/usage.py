"""Console pages of metered usage by hour or minute, by topic, client or user; exact in bytes, in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing import metered, selectors
from billing.forms import SpanForm
from billing.metered import GroupBy, Step
from instances.lifecycle.phases import COUNTED
from instances.models import TOPIC_CHARS_MAX, Instance
from instances.selectors import delays
from instances.views.common import instance_page, render_instance
from tenants import access
from tenants.choices import Scope
from tenants.formatting import clock

SPANS: dict[str, tuple[timedelta, Step]] = {
    "3h": (timedelta(hours=3), "minute"),
    "24h": (timedelta(hours=24), "hour"),
    "7d": (timedelta(days=7), "day"),
    "30d": (timedelta(days=30), "day"),
}
# Spans of the live chart beyond its live data: length, step, and seconds per step.
HISTORY: dict[str, tuple[timedelta, Step, int]] = {
    "3h": (timedelta(hours=3), "minute", 60),
    "24h": (timedelta(hours=24), "minute", 60),
    "30d": (timedelta(days=30), "hour", 3_600),
}
# Rows of hours have no topics, so that 30 days of one topic are drawn by days.
HISTORY_OF_TOPIC: dict[str, tuple[timedelta, Step, int]] = {**HISTORY, "30d": (timedelta(days=30), "day", 86_400)}
HEAVIEST_SHOWN = 10
MS_PER_S = 1_000
MINUTE_S = 60
# Maximum span that a chart draws by minutes.
MINUTES_DRAWN_MAX = timedelta(hours=24)


def _rows_by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per step with both directions, latest first."""
    steps: dict[datetime, dict[str, Any]] = {}
    for row in rows:
        step = steps.setdefault(row["start"], {"start": row["start"], "produce": 0, "consume": 0, "requests": 0})
        step[row["direction"]] = row["bytes"]
        step["requests"] += row["requests"]
    return sorted(steps.values(), key=lambda step: step["start"], reverse=True)


@instance_page(Scope.USAGE_READ)
@require_GET
def usage_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows the usage of one instance in a span, and its heaviest users."""
    form = SpanForm(request.GET)
    chosen = form.cleaned_data if form.is_valid() else {}
    span, by = chosen.get("span") or "24h", chosen.get("by") or "topic"
    length, step = SPANS[span]
    end = timezone.now()
    start = end - length
    group: GroupBy = by
    heaviest = metered.names_of([instance.pk], start=start, end=end, by=group, limit=HEAVIEST_SHOWN)
    quote = None
    may_see_price = access.permits(request.actor, Scope.BILLING_READ)  # type: ignore[attr-defined]
    if may_see_price:
        quote = selectors.quotes_of([instance], instance.tenant.currency).get(instance.pk)
    shares = [{"name": name, "produce": produced, "consume": consumed} for _, name, produced, consumed in heaviest]
    context = {
        "rows": _rows_by_step(metered.usage_rows(instance.pk, start=start, end=end, step=step)),
        "totals": metered.usage_totals(instance.pk, start=start, end=end),
        "complete_until": selectors.complete_until(instance.pk),
        "shares": shares,
        "biggest": max((share["produce"] + share["consume"] for share in shares), default=0),
        "span": span, "by": by, "step": step, "quote": quote,
        "may_see_price": may_see_price, "is_counted": instance.current_phase in COUNTED,
        "spans": form.fields["span"].choices, "groups": form.fields["by"].choices,  # type: ignore[attr-defined]
    }  # fmt: skip
    return render_instance(
        request, "billing/usage.html", instance, context, section="usage", crumbs=[(_("Usage & cost"), None)]
    )


@instance_page(Scope.USAGE_READ)
@require_GET
def history(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Returns the points of the live chart's longer spans from metered minutes: mean bytes/s and maximum delay per
    step.

    An instance younger than a span is drawn over its lifetime, by minutes if they are few enough. A sentence explains
    missing data, so that no chart is empty without a reason. With `topic` the points are of one topic, without delays
    and limit, which the instance has as a whole.
    """
    topic = request.GET.get("topic", "").replace("\x00", "")[:TOPIC_CHARS_MAX] or None
    spans = HISTORY if topic is None else HISTORY_OF_TOPIC
    length, step, step_s = spans.get(request.GET.get("range", ""), spans["3h"])
    now = timezone.now()
    running_since = instance.first_running_at or instance.created_at
    start = max(now - length, running_since)
    is_young = start == running_since
    if now - start <= MINUTES_DRAWN_MAX:
        step, step_s = "minute", MINUTE_S
    step_ms = step_s * MS_PER_S
    first_ms = -(-_ms(start) // step_ms) * step_ms
    last_ms = _ms(selectors.applied_until(instance.pk) or now)
    rows = metered.usage_rows(instance.pk, start=start, end=now, step=step, topic=topic)
    rows_by_start = {_ms(row["start"]): row for row in _rows_by_step(rows)}
    delays_ms = {} if topic is not None else delays(instance, start=start, end=now, step_ms=step_ms)
    empty_row = {"produce": 0, "consume": 0}
    steps = [(at_ms, rows_by_start.get(at_ms, empty_row)) for at_ms in range(first_ms, last_ms - step_ms + 1, step_ms)]
    points = [
        (at_ms, row["produce"] / step_s, row["consume"] / step_s, delays_ms.get(at_ms, 0)) for at_ms, row in steps
    ]
    return JsonResponse({
        "now_ms": _ms(now), "from_ms": _ms(start), "step_ms": step_ms, "points": points,
        "gaps": [], "partial": [], "limit_bytes_per_s": instance.bandwidth_bytes_per_s if topic is None else None,
        "note": _history_note(is_young=is_young, is_empty=not points, running_since=running_since),
    })  # fmt: skip


def _history_note(*, is_young: bool, is_empty: bool, running_since: datetime) -> str:
    """Returns the explanation of missing data; empty if the chart covers its span."""
    if is_empty:
        return _(
            "No whole minute is metered yet. Usage is metered by the minute, and shown within half a minute after."
        )
    return (
        _("The instance runs since %(time)s: there is nothing before.") % {"time": clock(running_since)}
        if is_young
        else ""
    )


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * MS_PER_S)
