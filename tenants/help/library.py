"""Documents that the console serves, loaded once from `docs/`. The list is fixed at first use, so that no URL leads to
another file.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

from tenants.help.rendering import render_markdown

# Folders below docs/ in display order; "" contains single documents.
SECTIONS = ("tutorial", "how-to", "explanation", "reference", "")
# Single documents beside the folders. Documents for developers of the product are not served.
SINGLE = ("GLOSSARY.md", "ISOLATION.md")
RESULTS_MAX = 20
EXCERPT_CHARS = 160
_TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
_MARKS = re.compile(r"[`*|#>]|\[|\]\([^)]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Document that the console serves. `name` is its path below docs/ without suffix."""

    name: str
    section: str
    title: str
    text: str

    @property
    def lower(self) -> str:
        return self.text.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Result of a search: a document that contains every word, with an excerpt."""

    document: Document
    excerpt: str


@cache
def documents() -> dict[str, Document]:
    """Returns all documents by name, in the order of their sections."""
    root = Path(settings.BASE_DIR) / "docs"
    documents_by_name: dict[str, Document] = {}
    for section in SECTIONS:
        files = sorted((root / section).glob("*.md")) if section else [root / name for name in SINGLE]
        for file in files:
            text = file.read_text(encoding="utf-8")
            title = _TITLE.search(text)
            name = file.relative_to(root).with_suffix("").as_posix()
            documents_by_name[name] = Document(
                name=name, section=section, title=_MARKS.sub("", title[1]) if title else name, text=text
            )
    return documents_by_name


@cache
def page_of(name: str) -> str:
    """Returns a document as HTML. Links to served documents become links to their pages, other relative links plain
    text.
    """
    document = documents()[name]

    def resolve(link: str) -> str | None:
        target, mark, anchor = link.partition("#")
        if link.startswith(("https://", "http://", "#", "mailto:")):
            return link
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)).removesuffix(".md")
        return f"/docs/{path}/{mark}{anchor}" if path in documents() else None

    return render_markdown(document.text, resolve)


def search(words: tuple[str, ...]) -> list[SearchResult]:
    """Returns documents that contain every word: matches in the title first, then by number of matches."""
    if not words:
        return []
    hits = [document for document in documents().values() if all(word in document.lower for word in words)]

    def rank(document: Document) -> tuple[int, int, str]:
        in_title = sum(word in document.title.lower() for word in words)
        return -in_title, -sum(document.lower.count(word) for word in words), document.name

    return [
        SearchResult(document=document, excerpt=_excerpt(document, words[0]))
        for document in sorted(hits, key=rank)[:RESULTS_MAX]
    ]


def _excerpt(document: Document, word: str) -> str:
    position = document.lower.find(word, document.text.find("\n"))
    start = max(0, max(position, 0) - EXCERPT_CHARS // 3)
    text = " ".join(_MARKS.sub("", document.text[start : start + EXCERPT_CHARS]).split())
    return f"… {text} …"
