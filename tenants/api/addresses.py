"""Names inside addresses: one segment each, whatever is in them.

WSGI hands over a path that is decoded already, in which the slash of a group called `a/offsets` is like any other. The
address as it was sent is kept by the servers beside it, so before a route is looked for, each segment is decoded and
its slashes and percent signs are encoded again; the converter `name` takes that back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from django.urls import register_converter

RAW_ADDRESS_KEYS = ("RAW_URI", "REQUEST_URI")


class NameConverter:
    """A name of a tenant's own choosing as one segment of a path; unencoded slashes are taken as part of it."""

    regex = "(?s:.+)"

    def to_python(self, value: str) -> str:
        return unquote(value)

    def to_url(self, value: str) -> str:
        return _kept(value)


NAME = "name"  # as routes say it: f"groups/<{NAME}:group>"
register_converter(NameConverter, NAME)


def routed_path(environ: Mapping[str, Any], decoded: str) -> str:
    """The path to find a route for: as it was sent where that is known, else out of the decoded one."""
    sent = next((environ[key] for key in RAW_ADDRESS_KEYS if environ.get(key)), "")
    path = urlsplit(sent).path if sent.startswith("/") and not sent.startswith("//") else ""
    if not path or unquote(path) != decoded:
        return decoded.replace("%", "%25")
    return "/".join(_kept(unquote(segment)) for segment in path.split("/"))


def _kept(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
