"""Digests of the style elements that Unfold writes into the operator panel's pages; others are not allowed."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template import Context, Engine, Template
from django.template.loader import get_template

SKELETON = "unfold/layouts/skeleton.html"
CHANGE_LIST = "admin/change_list.html"
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)


def style_digests() -> list[str]:
    """Returns `sha256-…` of each style element for the content security policy."""
    site: Any = admin.site
    request = HttpRequest()
    values = {
        "colors": site._get_colors("COLORS", request),
        "border_radius": site._get_config("BORDER_RADIUS", request),
    }
    return [_digest(text) for name in (SKELETON, CHANGE_LIST) for text in _styles(name, values)]


def _styles(name: str, values: dict[str, Any]) -> list[str]:
    """Renders the style elements of a template, which do not depend on the page."""
    template: Any = get_template(name)
    source, engine = template.template.source, Engine.get_default()
    return [Template(text, engine=engine).render(Context(values)) for text in _STYLE.findall(source)]


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
