"""Operator page that compares sold and used capacity."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing.admin_views.base import money_page, show
from billing.reporting import margins


@money_page()
@require_GET
def margins_page(request: HttpRequest) -> HttpResponse:
    """Shows a row for each cluster, from results that a task stores, because hours of usage are slow to read."""
    month, kept = margins.latest_month(), margins.last_kept()
    context = {
        "lines": margins.margins(month, kept),
        "month": month,
        "kept_at": None if kept is None else kept.at,
        "days": margins.DAYS_LOOKED_AT,
        "now": timezone.now(),
    }
    return show(request, "margins", _("Margins"), context)
