"""Names as single URL segments, regardless of their characters.

WSGI provides a decoded path, in which the slash of a group called `a/offsets` looks like any other. Servers also
provide the original URL; before routing, each of its segments is decoded, and its slashes and percent signs are encoded
again. The converter `name` reverts that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from django.urls import register_converter

RAW_ADDRESS_KEYS = ("RAW_URI", "REQUEST_URI")


class NameConverter:
    """Name chosen by a tenant as one segment of a path; unencoded slashes are accepted as part of it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return unquote(value)

    def to_url(self, value: str) -> str:
        return _encoded(value)


NAME = "name"  # used in routes: f"groups/<{NAME}:group>"
register_converter(NameConverter, NAME)


def routed_path(environ: Mapping[str, Any], decoded: str) -> str:
    """Returns the path for routing: from the original URL if available, otherwise from the decoded path."""
    raw_uri = next((environ[key] for key in RAW_ADDRESS_KEYS if environ.get(key)), "")
    path = urlsplit(raw_uri).path if raw_uri.startswith("/") and not raw_uri.startswith("//") else ""
    if not path or unquote(path) != decoded:
        return decoded.replace("%", "%25")
    return "/".join(_encoded(unquote(segment)) for segment in path.split("/"))


def _encoded(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
