"""What the search palette can jump to. Apps above add their own pages with `add_source`, because apps lean one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypedDict

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.views.base import console_page

ENTRIES_MAX = 500


class Entry(TypedDict):
    """One line of the palette: `hint` stands right, in muted letters."""

    label: str
    hint: str
    url: str


Source = Callable[[Actor], Iterable[Entry]]
_sources: list[Source] = []


def add_source(source: Source) -> None:
    """Offer more places to jump to; called once, at import of the app's `urls`."""
    if source not in _sources:
        _sources.append(source)


def account_pages(acting: Actor) -> list[Entry]:
    """The pages of the shell the actor may open."""
    pages = (
        ("page-members", _("Members"), Scope.MEMBERS_READ),
        ("page-tokens", _("API tokens"), Scope.TOKENS_READ),
        ("page-audit", _("Audit log"), Scope.AUDIT_READ),
        ("page-settings", _("Settings"), None),
    )
    return [
        Entry(label=label, hint=_("Account"), url=reverse(page))
        for page, label, scope in pages
        if scope is None or access.permits(acting, scope)
    ]


@console_page()
@require_GET
def palette(request: HttpRequest) -> HttpResponse:
    """Everything the palette knows for this member."""
    acting = request.actor  # type: ignore[attr-defined]
    entries = [entry for source in (*_sources, account_pages) for entry in source(acting)]
    return JsonResponse({"entries": entries[:ENTRIES_MAX]})
