"""Search palette. Apps above add entries with `add_source`, because dependencies between apps point in one direction.

A search has two parts that are requested in parallel: `places` (pages, actions, instances) come from the database,
`names` (topics, groups) from brokers, and the palette works without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from django import forms
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.views.base import console_page

ENTRIES_MAX = 30
WORDS_CHARS_MAX = 128
WORDS_MAX = 8


class Entry(TypedDict):
    """Entry of the palette; `hint` is shown on the right in a muted colour."""

    label: str
    hint: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search by an actor. `instance_id` is the instance of the page on which the palette was opened, or ""."""

    actor: Actor
    words: tuple[str, ...]
    instance_id: str

    def matches(self, entry: Entry) -> bool:
        """True if every word is contained in the entry."""
        text = f"{entry['label']} {entry['hint']}".lower()
        return all(word in text for word in self.words)

    def rank(self, entry: Entry) -> int:
        """Returns the sort key: entries that begin with the words come first."""
        return 0 if entry["label"].lower().startswith(" ".join(self.words)) else 1


class PartialResult(Exception):
    """A source could not search everywhere; `entries` has what it found."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__()
        self.entries = entries


Source = Callable[[Search], Iterable[Entry]]
Part = Literal["places", "names"]
_sources: dict[Part, list[Source]] = {"places": [], "names": []}


def add_source(source: Source, part: Part = "places") -> None:
    """Registers a source of entries; called once, at import of the app's `urls`."""
    if source not in _sources[part]:
        _sources[part].append(source)


class PaletteForm(forms.Form):
    q = forms.CharField(required=False, max_length=WORDS_CHARS_MAX)
    instance = forms.CharField(required=False, max_length=32)
    part = forms.ChoiceField(required=False, choices=[(part, part) for part in _sources])


def entry_of(label: str, hint: str, page: str, *args: str) -> Entry | None:
    """Returns an entry for a page, or None if no app has it."""
    try:
        return Entry(label=label, hint=hint, url=reverse(page, args=args))
    except NoReverseMatch:
        return None


def account_places(search: Search) -> list[Entry]:
    """Returns the pages and actions of the account that the actor may open."""
    page, action = _("Page"), _("Action")
    places = (
        (_("Usage & cost"), page, "page-account-usage", Scope.USAGE_READ),
        (_("Archives"), page, "page-archives", Scope.ARCHIVES_READ),
        (_("Invoices"), page, "page-invoices", Scope.BILLING_READ),
        (_("Account statement"), page, "page-ledger", Scope.BILLING_READ),
        (_("Billing details"), page, "page-billing-details", Scope.BILLING_READ),
        (_("Budgets"), page, "page-budgets", Scope.BILLING_READ),
        (_("Webhooks"), page, "page-webhooks", Scope.BILLING_READ),
        (_("Alert rules"), page, "page-alert-rules", Scope.USAGE_READ),
        (_("Members"), page, "page-members", Scope.MEMBERS_READ),
        (_("Single sign-on"), page, "page-sso-settings", Scope.MEMBERS_READ),
        (_("Invite a member"), action, "page-members", Scope.MEMBERS_WRITE),
        (_("API tokens"), page, "page-tokens", Scope.TOKENS_READ),
        (_("Create token"), action, "page-tokens", Scope.TOKENS_WRITE),
        (_("Audit log"), page, "page-audit", Scope.AUDIT_READ),
        (_("Security"), page, "page-security", None),
        (_("Settings"), page, "page-settings", None),
        (_("API documentation"), page, "api-docs", None),
        (_("Help"), page, "page-help", None),
    )
    return permitted(search.actor, places)


def permitted(actor: Actor, places: Iterable[tuple[str, str, str, str | None]], *args: str) -> list[Entry]:
    """Returns the entries of `(label, hint, page, scope)` that exist and that the actor may open."""
    entries = (
        entry_of(label, hint, page, *args)
        for label, hint, page, scope in places
        if scope is None or access.permits(actor, scope)
    )
    return [entry for entry in entries if entry is not None]


@console_page()
@require_GET
def palette(request: HttpRequest) -> HttpResponse:
    """Returns the entries that match the words best; `is_partial` is true if brokers did not answer in time."""
    form = PaletteForm(request.GET)
    query = form.cleaned_data if form.is_valid() else {}
    search = Search(
        actor=request.actor,  # type: ignore[attr-defined]
        words=tuple(query.get("q", "").lower().split()[:WORDS_MAX]),
        instance_id=query.get("instance", ""),
    )
    part: Part = "names" if query.get("part") == "names" else "places"
    entries: list[Entry] = []
    is_partial = False
    for source in (*_sources[part], *((account_places,) if part == "places" else ())):
        try:
            entries += source(search)
        except PartialResult as partial:
            entries += partial.entries
            is_partial = True
    best_entries = sorted(filter(search.matches, entries), key=search.rank)[:ENTRIES_MAX]
    return JsonResponse({"entries": best_entries, "is_partial": is_partial})
