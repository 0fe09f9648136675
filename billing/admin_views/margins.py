"""Operator page that compares sold and used capacity."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing.admin_views.base import money_page, render_page
from billing.reporting import margins


@money_page()
@require_GET
def margins_page(request: HttpRequest) -> HttpResponse:
    """Shows a row for each cluster, from results that a task stores, because hours of usage are slow to read."""
    month, stored = margins.latest_month(), margins.last_stored()
    context = {
        "lines": margins.margins(month, stored),
        "month": month,
        "kept_at": None if stored is None else stored.at,
        "days": margins.WINDOW_DAYS,
        "now": timezone.now(),
    }
    return render_page(request, "margins", _("Margins"), context)
