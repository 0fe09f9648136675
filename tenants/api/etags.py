"""ETag and If-Match: a change is made only to the version the caller has seen."""

from __future__ import annotations

import hashlib
from typing import Any

from tenants.errors import PreconditionFailed

ETAG_CHARS = 16


def etag_of(thing: Any) -> str:
    """A strong ETag. `thing` is a `Versioned` row, or any value whose repr tells versions apart (tuple, dict, str)."""
    version = getattr(thing, "version", None)
    text = f"{thing.pk}:{version}" if version is not None and hasattr(thing, "pk") else repr(thing)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:ETAG_CHARS]}"'


def require_match(header: str | None, etag: str) -> None:
    """Raise `PreconditionFailed` unless `If-Match` is absent, `*`, or names `etag`."""
    if header is None or header.strip() == "*":
        return
    if etag not in (candidate.strip() for candidate in header.split(",")):
        raise PreconditionFailed("The resource is not the one If-Match names. Read it again.")


def require_no_version(header: str | None) -> None:
    """Raise `PreconditionFailed` for an `If-Match` that names a version of what has none: nobody could honour it."""
    if header is not None and header.strip() != "*":
        raise PreconditionFailed("What this request changes has no ETag. Send it without If-Match.")
