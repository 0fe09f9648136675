"""Audit log: changes with actor, before and after. It is never empty, since it begins with the founding of
the tenant.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from tenants import access, csv_files, selectors
from tenants.api.pages import page_of_rows
from tenants.audit_words import sentence_of
from tenants.choices import Scope
from tenants.csv_files import inert
from tenants.forms import AuditFilterForm
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.models import AuditEntry
from tenants.views.base import console_page, render_page

ORDER = ("-time", "-id")
EXPORT_ROWS_MAX = 100_000


def _filtered(request: HttpRequest) -> tuple[QuerySet[AuditEntry], str, str]:
    form = AuditFilterForm(request.GET)
    words, page_token = ("", "") if not form.is_valid() else (form.cleaned_data["q"], form.cleaned_data["page_token"])
    rows = selectors.audit_entries(access.tenant_of(request.actor))  # type: ignore[attr-defined]
    for word in words.split():
        rows = rows.filter(
            Q(action__icontains=word)
            | Q(target_id__icontains=word)
            | Q(actor_label__icontains=word)
            | Q(request_id=word)
            | _from_address(word)
        )
    return rows, words, page_token


def _from_address(word: str) -> Q:
    """Returns a filter by client address; for another word an empty one, which adds nothing to an OR."""
    try:
        return Q(ip=str(ip_address(word)))
    except ValueError:
        return Q()


@console_page(Scope.AUDIT_READ)
@require_GET
def audit_page(request: HttpRequest) -> HttpResponse:
    """Shows a page of 50, latest first; the filter is in the URL."""
    rows, words, page_token = _filtered(request)
    entries, next_token = page_of_rows(
        rows, order=ORDER, page_size=PAGE_SIZE_DEFAULT, page_token=page_token or None, binding=f"audit page {words}"
    )
    context = {
        "entries": [(entry, _changes(entry), sentence_of(entry)) for entry in entries],
        "words": words,
        "next_token": next_token,
        "is_first": not page_token,
    }
    template = "console/audit_rows.html" if request.headers.get("HX-Request") else "console/audit.html"
    return render_page(request, template, context, section="audit", crumbs=[(_("Audit log"), None)])


def _changes(entry: AuditEntry) -> list[tuple[str, Any, Any]]:
    before, after = entry.before or {}, entry.after or {}
    return [(name, _shown(before.get(name)), _shown(after.get(name))) for name in {**before, **after}]


def _shown(value: Any) -> str | None:
    """Returns a string as it is, and any other value as JSON, like the API; None stays None."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@console_page(Scope.AUDIT_READ)
@require_GET
def audit_csv(request: HttpRequest) -> HttpResponse:
    """Exports the filtered log as CSV, in UTC."""
    rows, _words, _token = _filtered(request)
    head = (
        "time", "actor_kind", "actor", "action", "target_type", "target", "before", "after", "request_id", "ip",
        "context",
    )  # fmt: skip
    lines = (
        (
            entry.time.isoformat(), entry.actor_kind, inert(entry.actor_label), entry.action, entry.target_type,
            inert(entry.target_id), _json(entry.before), _json(entry.after), inert(entry.request_id), entry.ip or "",
            _json(entry.context),
        )
        for entry in rows.order_by(*ORDER)[:EXPORT_ROWS_MAX].iterator(chunk_size=500)
    )  # fmt: skip
    return csv_files.response("audit.csv", head, lines, for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]


def _json(values: Any) -> str:
    """Returns a value as JSON; empty for None."""
    return "" if values is None else json.dumps(values, ensure_ascii=False)
