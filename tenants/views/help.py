"""Help pages: the documentation with search."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from tenants.errors import NotFound
from tenants.help import library
from tenants.help.library import Document
from tenants.views.base import console_page, render_page
from tenants.views.palette import WORDS_CHARS_MAX, WORDS_MAX, Entry, Search, add_source


def sections() -> list[tuple[str, list[Document]]]:
    """Returns the documents by section, with the section's title."""
    titles = {
        "tutorial": _("Tutorial"),
        "how-to": _("How to"),
        "explanation": _("Explanation"),
        "reference": _("Reference"),
        "": _("More"),
    }
    documents = library.documents().values()
    return [(title, [document for document in documents if document.section == key]) for key, title in titles.items()]


@console_page(needs_tenant=False)
@require_GET
def help_page(request: HttpRequest) -> HttpResponse:
    """Lists documents, or those that contain the search words."""
    text = request.GET.get("q", "")[:WORDS_CHARS_MAX].replace("\x00", "")
    words = tuple(text.lower().split()[:WORDS_MAX])
    context = {"words": text, "found": library.search(words) if words else None, "sections": sections()}
    return render_page(request, "console/help.html", context, section="help", crumbs=[(_("Help"), None)])


@console_page(needs_tenant=False)
@require_GET
def document_page(request: HttpRequest, name: str) -> HttpResponse:
    """Shows one document."""
    document = library.documents().get(name)
    if document is None:
        raise NotFound
    context = {
        "document": document,
        "body": mark_safe(library.page_of(name)),  # noqa: S308  our own document, rendered without HTML of its own
        "sections": sections(),
    }
    crumbs = [(_("Help"), reverse("page-help")), (document.title, None)]
    return render_page(request, "console/help.html", context, section="help", crumbs=crumbs)


def help_places(search: Search) -> list[Entry]:
    """Returns all documents as entries of the palette, which shows those that match; none without words."""
    if not search.words:
        return []
    return [
        Entry(label=document.title, hint=_("Help"), url=reverse("page-help-document", args=[document.name]))
        for document in library.documents().values()
    ]


def register() -> None:
    """Registers the documents with the palette."""
    add_source(help_places)
