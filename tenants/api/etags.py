"""ETag and If-Match: a change is applied only to the version that the caller has read."""

from __future__ import annotations

import hashlib
from typing import Any

from tenants.errors import PreconditionFailed

ETAG_CHARS = 16


def etag_of(thing: Any) -> str:
    """Returns a strong ETag. `thing` is a `Versioned` row, or any value whose repr identifies its version."""
    version = getattr(thing, "version", None)
    text = f"{thing.pk}:{version}" if version is not None and hasattr(thing, "pk") else repr(thing)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:ETAG_CHARS]}"'


def require_match(header: str | None, etag: str) -> None:
    """Raises `PreconditionFailed` unless `If-Match` is absent, `*`, or names `etag`."""
    if header is None or header.strip() == "*":
        return
    if etag not in (candidate.strip() for candidate in header.split(",")):
        raise PreconditionFailed("The resource is not the one If-Match names. Read it again.")


def require_no_version(header: str | None) -> None:
    """Raises `PreconditionFailed` if `If-Match` names a version of a resource without versions."""
    if header is not None and header.strip() != "*":
        raise PreconditionFailed("What this request changes has no ETag. Send it without If-Match.")
