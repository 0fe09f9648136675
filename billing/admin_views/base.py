"""Common parts of the operator pages about money: permissions, frame and query parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode

from tenants.views.base import signed_out_part

View = Callable[..., HttpResponse]
Row = TypeVar("Row")

# Permissions to see money, to mark invoices as paid, and to issue invoices.
MAY_SEE = "billing.view_invoice"
MAY_CLOSE = "billing.change_invoice"
MAY_ISSUE = "billing.add_invoice"
ROWS_PER_PAGE = 50
SEARCH_CHARS_MAX = 100
YEAR_FIRST = 2000


def money_page(permission: str = MAY_SEE) -> Callable[[View], View]:
    """Returns a decorator that restricts an operator page to signed-in staff with `MAY_SEE` and `permission`."""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def run(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.has_perms((MAY_SEE, permission)):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        staff_view = admin.site.admin_view(run)

        @functools.wraps(view)
        def part_or_page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            signed_out = None if admin.site.has_permission(request) else signed_out_part(request)
            return signed_out or staff_view(request, *args, **kwargs)

        return part_or_page

    return decorate


def render_page(request: HttpRequest, template: str, title: str, context: Mapping[str, Any]) -> HttpResponse:
    """Renders a page inside the panel's frame."""
    values = {
        **admin.site.each_context(request),
        "title": title,
        "may_close": request.user.has_perm(MAY_CLOSE),
        "may_issue": request.user.has_perm(MAY_ISSUE),
        "may_see_tenants": request.user.has_perm("tenants.view_tenant"),
        **context,
    }
    return render(request, f"operator/{template}.html", values)


def search_text(request: HttpRequest) -> str:
    """Returns the search text of the request."""
    return request.GET.get("q", "").strip()[:SEARCH_CHARS_MAX]


def parse_month(text: str) -> datetime | None:
    """Returns the first instant (UTC) of a month written like 2026-11; None for any other text, and before 2000."""
    try:
        result = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        return None
    return result if result.year >= YEAR_FIRST else None


def page_of(request: HttpRequest, rows: Sequence[Row] | QuerySet[Any], count: int | None = None) -> Page[Any]:
    """Returns the requested page, or the nearest existing one. A known `count` saves the counting query."""
    paginator = Paginator(rows, ROWS_PER_PAGE)
    if count is not None:
        paginator.count = count
    return paginator.get_page(request.GET.get("page"))


def query(**values: str) -> str:
    """Encodes query parameters such as `month=2026-11&q=acme`, without empty ones."""
    return urlencode({name: value for name, value in values.items() if value})
