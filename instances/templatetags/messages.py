"""Template tags of pages of messages: times to the millisecond, and JSON as a tree that can be folded."""

from __future__ import annotations

from datetime import UTC

from django import template
from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from instances.messages.json_tree import ARRAY, OBJECT, Node
from tenants import formatting

register = template.Library()

OPEN_DEPTH = 1
BRACKETS = {OBJECT: ("{", "}"), ARRAY: ("[", "]")}


@register.simple_tag
def message_time(timestamp_ms: int) -> SafeString | str:
    """Renders the local time with milliseconds, with the date unless it is today; UTC on hover."""
    instant = formatting.from_ms(timestamp_ms)
    if instant is None:
        return formatting.UNKNOWN
    return format_html(
        '<time datetime="{}" title="{}">{}.{}</time>',
        instant.isoformat(), message_time_utc(timestamp_ms), formatting.clock(instant), f"{timestamp_ms % 1000:03}",
    )  # fmt: skip


@register.simple_tag
def message_time_utc(timestamp_ms: int) -> str:
    """Returns the exact instant in UTC; a number beyond the range of datetime is returned with its unit."""
    instant = formatting.from_ms(timestamp_ms)
    if instant is None:
        return f"{timestamp_ms} ms"
    return f"{timezone.localtime(instant, UTC):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC"


@register.simple_tag
def json_tree(node: Node) -> SafeString:
    """Renders a JSON value as a tree that can be folded."""
    parts: list[str] = []
    _write(node, 0, parts)
    return mark_safe("".join(parts))  # noqa: S308  texts are escaped below


def _write(node: Node, depth: int, parts: list[str]) -> None:
    name = "" if node.name is None else f'<span class="name">"{escape(node.name)}"</span>: '
    if node.kind not in BRACKETS:
        parts.append(f'<div>{name}<span class="{node.kind}">{escape(node.text)}</span></div>')
        return
    opening, closing = BRACKETS[node.kind]
    if not node.children:
        parts.append(f"<div>{name}{opening}{closing}</div>")
        return
    is_open = " open" if depth < OPEN_DEPTH else ""
    parts.append(
        f'<details{is_open}><summary>{name}{opening}<span class="folded"> … {node.text} {closing}</span></summary>'
        '<div class="members">'
    )
    for child in node.children:
        _write(child, depth + 1, parts)
    parts.append(f"</div>{closing}</details>")
