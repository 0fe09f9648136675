"""Operator page of hanging transactions, and the actions that abort them.

The page always queries the coordinators. It scans partitions only on demand and in parts, because a cluster has many
partitions and hardly any of them has a hanging transaction.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from brokers.admin_views.panel import attempt, cluster_or_404, page, render_page
from brokers.transactions import hanging
from tenants.operator import acting_operator

AFTER_CHARS_MAX = 300


@page
@require_GET
def transactions(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Shows transactions beyond their timeout and, on demand, open ones unknown to every coordinator."""
    cluster = cluster_or_404(cluster_id)
    is_scan_wanted = "look" in request.GET
    after = request.GET.get("look", "")[:AFTER_CHARS_MAX]
    context: dict[str, Any] = {
        "cluster": cluster,
        "overdue": attempt(request, lambda: hanging.list_overdue(cluster), ""),
        "scan": attempt(request, lambda: hanging.scan_orphans(cluster, after=after), "") if is_scan_wanted else None,
        "is_first": not after,
    }
    return render_page(request, "transactions", _("Transactions that hang"), context)


@page
@require_POST
def abort_overdue(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Fences a producer, which aborts its transaction on all partitions."""
    cluster = cluster_or_404(cluster_id)
    transactional_id = request.POST.get("id", "")
    attempt(
        request,
        lambda: hanging.abort_overdue(
            acting=acting_operator(request), cluster=cluster, transactional_id=transactional_id
        ),
        _("Aborted. Its producer must begin anew."),
    )
    return redirect("admin:brokers_transactions", cluster.pk)


@page
@require_POST
def abort_orphan(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Writes an ABORT marker into one partition."""
    cluster = cluster_or_404(cluster_id)
    numbers = {name: request.POST.get(name, "") for name in ("partition", "producer_id", "started_at")}
    if all(text.isascii() and text.isdigit() and len(text) < 20 for text in numbers.values()):
        attempt(
            request,
            lambda: hanging.abort_orphan(
                acting=acting_operator(request),
                cluster=cluster,
                topic=request.POST.get("topic", ""),
                partition=int(numbers["partition"]),
                producer_id=int(numbers["producer_id"]),
                transaction_start_offset=int(numbers["started_at"]),
            ),
            _("Aborted on this partition."),
        )
    else:
        messages.error(request, _("There is no such partition."))
    return redirect(reverse("admin:brokers_transactions", args=[cluster.pk]) + "?look=")


def urls() -> list[URLPattern]:
    """URLs below /operator/brokers/cluster/."""
    return [
        path("<str:cluster_id>/transactions/", transactions, name="brokers_transactions"),
        path("<str:cluster_id>/transactions/abort-overdue/", abort_overdue, name="brokers_abort_overdue"),
        path("<str:cluster_id>/transactions/abort-orphan/", abort_orphan, name="brokers_abort_orphan"),
    ]
