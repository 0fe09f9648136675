"""Pages of consumer groups: the list with lags, and one group with its members and partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from instances import services
from instances.groups import blocking_transactions, selectors
from instances.groups.selectors import GroupDetail, GroupRow, PartitionLag
from instances.lifecycle.phases import REACHABLE
from instances.limits import GROUP_PARTITIONS_PER_PAGE
from instances.models import Instance
from instances.templatetags.groups import group_url
from instances.views.attention import alert_notice, firing_alerts_of
from instances.views.common import instance_page, render_instance
from tenants.api.pages import page_of_items
from tenants.choices import Scope
from tenants.errors import Unavailable
from tenants.forms import AuditFilterForm
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.models import AuditEntry
from tenants.views.base import Crumb, wording

REFRESH_PERIOD_S = 3
MEMBERS_SHOWN_MAX = 100
GROUPS_SHOWN = 5
GROUPS_COMPARED_MAX = 50
UNDO_OFFERED_FOR = timedelta(hours=24)
# Filter word in the URL -> Kafka's states.
FILTERS: Mapping[str, tuple[str, ...]] = {
    "stable": ("Stable",),
    "rebalancing": ("PreparingRebalance", "CompletingRebalance"),
    "empty": ("Empty", "Dead"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLagPage:
    """One page of a group's partitions: those with the largest lag, or all by name with a token for the next page."""

    partitions: tuple[PartitionLag, ...]
    sort: str
    next_token: str | None
    is_first: bool
    total: int
    biggest: int


@instance_page(Scope.GROUPS_READ)
@require_GET
def groups_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one page of groups by name. The page is rendered from ListGroups alone; lag, members and trend follow in
    the live part.
    """
    form = AuditFilterForm(request.GET)
    search_text, page_token = (form.cleaned_data["q"], form.cleaned_data["page_token"]) if form.is_valid() else ("", "")
    state_filter = request.GET.get("state", "")
    is_part = bool(request.headers.get("HX-Request"))
    context: dict[str, Any] = {
        "words": search_text,
        "state": state_filter,
        "is_part": is_part,
        "period_s": REFRESH_PERIOD_S,
        "rows": (),
    }
    if instance.current_phase in REACHABLE:
        page = selectors.group_page(
            instance, contains=search_text, states=FILTERS.get(state_filter, ()), page_token=page_token or None,
            page_size=PAGE_SIZE_DEFAULT,
        )  # fmt: skip
        rows = selectors.with_lags(instance, page.rows) if is_part else page.rows
        context |= {
            "rows": rows,
            "next_token": page.next_token,
            "is_first": not page_token,
            "silent": page.silent,
            "biggest": max((row.lag or 0 for row in rows), default=0),
            "filters": _filters(page.counts, state_filter),
            "total": sum(page.counts.values()),
        }
    template = "instances/group_rows.html" if is_part else "instances/groups.html"
    return render_instance(request, template, instance, context, section="groups", crumbs=[(_("Groups"), None)])


@instance_page(Scope.GROUPS_READ)
@require_GET
def groups_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the groups with the largest lags for the instance's page. If there are too many groups to query, only
    those with the largest lags in the last sample are queried.
    """
    page = selectors.group_page(instance, page_size=GROUPS_COMPARED_MAX)
    candidates: Sequence[GroupRow] = page.rows
    if page.next_token is not None:
        all_groups = selectors.group_page(instance, page_size=sum(page.counts.values()))
        candidates = selectors.largest_sampled_lags(
            instance, all_groups.rows, GROUPS_SHOWN, now_ms=time.time_ns() // 1_000_000
        )
    rows = selectors.with_lags(instance, candidates) if candidates else ()
    most_lagging = sorted(rows, key=lambda row: -1 if row.lag is None else row.lag, reverse=True)[:GROUPS_SHOWN]
    context = {
        "rows": most_lagging,
        "total": sum(page.counts.values()),
        "filters": _filters(page.counts, ""),
        "silent": page.silent,
        "biggest": max((row.lag or 0 for row in most_lagging), default=0),
        "is_part": True,
    }
    return render_instance(request, "instances/groups_part.html", instance, context, section="overview")


def _filters(counts: Mapping[str, int], state_filter: str) -> list[tuple[str, str, int, bool]]:
    """Returns the filters by state as `(filter word in the URL, label, number of groups, is chosen)`."""
    labels = {
        "": _("All"), "stable": _("Stable"), "rebalancing": _("Rebalancing"), "empty": _("No members"),
    }  # fmt: skip
    count_by_name = {name: sum(counts.get(state, 0) for state in states) for name, states in FILTERS.items()}
    return [
        (name, label, count_by_name.get(name, sum(counts.values())), name == state_filter)
        for name, label in labels.items()
    ]


def crumbs_of(instance: Instance, group: str, *more: Crumb) -> list[Crumb]:
    """Returns the breadcrumb of a group's page."""
    group_page_url = group_url("page-group", instance.pk, group) if more else None
    return [(_("Groups"), reverse("page-groups", args=[instance.pk])), (group, group_page_url), *more]


@instance_page(Scope.GROUPS_READ)
@require_GET
def group_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one group, live: gauges, partitions (largest lag first, or all by name) and members. Unknown groups are not
    found.
    """
    group = request.GET.get("group", "")
    is_part = bool(request.headers.get("HX-Request"))
    context: dict[str, Any] = {"group": group, "period_s": REFRESH_PERIOD_S}
    try:
        detail = selectors.group_detail(instance, group)
    except Unavailable as error:
        context["trouble"] = wording(error)  # the page is shown, and its live part queries again
    else:
        context |= {
            "detail": detail,
            "page": _partition_page(request, instance, detail),
            "members": _members(detail),
            "members_more": max(0, len(detail.description.members) - MEMBERS_SHOWN_MAX),
            "topics": len({partition.topic for partition in detail.partitions}),
            "moved": _undoable_entry(instance, detail),
            "held": blocking_transactions.blocking_transactions(instance, detail.partitions),
            "needs": [
                alert_notice(instance, alert)
                for alert in firing_alerts_of(request.actor, instance)  # type: ignore[attr-defined]
                if alert.group == group
            ],
        }
    template = "instances/group_part.html" if is_part else "instances/group.html"
    return render_instance(
        request, template, instance, context, section="groups", crumbs=crumbs_of(instance, group),
        status=503 if is_part and "trouble" in context else 200,
    )  # fmt: skip


def _partition_page(request: HttpRequest, instance: Instance, detail: GroupDetail) -> PartitionLagPage:
    sort = "name" if request.GET.get("sort") == "name" else "lag"
    token = request.GET.get("page_token", "")
    next_token = None
    if sort == "name":
        partitions, next_token = page_of_items(
            detail.partitions,
            key=lambda partition: f"{partition.topic}/{partition.partition:010}",
            page_size=GROUP_PARTITIONS_PER_PAGE,
            page_token=token or None,
            binding=f"lines {instance.pk} {detail.id}",
        )
    else:
        largest_lag_first = sorted(
            detail.partitions, key=lambda partition: -1 if partition.lag is None else partition.lag, reverse=True
        )
        partitions = largest_lag_first[:GROUP_PARTITIONS_PER_PAGE]
    return PartitionLagPage(
        partitions=tuple(partitions),
        sort=sort,
        next_token=next_token,
        is_first=not token,
        total=len(detail.partitions) + detail.left_out,
        biggest=max((partition.lag or 0 for partition in detail.partitions), default=0),
    )


def _members(detail: GroupDetail) -> list[tuple[Any, list[tuple[str, str]] | None, int | None]]:
    """Returns members with their assignment by topic, written as `0-3, 7`, and their lag (None if it is unknown)."""
    lags = {partition.topic_partition: partition.lag for partition in detail.partitions}
    result: list[tuple[Any, list[tuple[str, str]] | None, int | None]] = []
    for member in detail.description.members[:MEMBERS_SHOWN_MAX]:
        if member.assignment is None:
            result.append((member, None, None))
            continue
        by_topic: dict[str, list[int]] = {}
        for topic, index in member.assignment:
            by_topic.setdefault(topic, []).append(index)
        known_lags = [lag for partition in member.assignment if (lag := lags.get(partition)) is not None]
        lag_sum = sum(known_lags) if known_lags else None
        result.append((member, [(topic, ranges(indexes)) for topic, indexes in sorted(by_topic.items())], lag_sum))
    return result


def ranges(indexes: Sequence[int]) -> str:
    """Returns numbers as ranges: `0-3, 7`. Pure."""
    spans: list[list[int]] = []
    for index in sorted(set(indexes)):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _undoable_entry(instance: Instance, detail: GroupDetail) -> AuditEntry | None:
    """Returns the audit row of the last change of offsets, if it can still be undone."""
    entry = selectors.last_undoable_change(instance, services.group_ref(instance, detail.id))
    if entry is None or not detail.is_empty or timezone.now() - entry.time > UNDO_OFFERED_FOR:
        return None
    offsets_after = services.offsets_from_audit(entry.after)
    current_offsets = {partition.topic_partition: partition.committed for partition in detail.partitions}
    return (
        entry
        if offsets_after
        and all(current_offsets.get(partition) == offset for partition, offset in offsets_after.items())
        else None
    )
