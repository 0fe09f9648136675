"""Template tags of pages of messages: times to the millisecond, and JSON that folds."""

from __future__ import annotations

from datetime import UTC

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

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
def json_tree(node: Node, depth: int = 0) -> SafeString:
    """Renders a JSON value with members that fold."""
    name = format_html('<span class="name">"{}"</span>: ', node.name) if node.name is not None else ""
    if node.kind not in BRACKETS:
        return format_html('<div>{}<span class="{}">{}</span></div>', name, node.kind, node.text)
    first, last = BRACKETS[node.kind]
    if not node.children:
        return format_html("<div>{}{}{}</div>", name, first, last)
    inner = format_html_join("", "{}", ((json_tree(child, depth + 1),) for child in node.children))
    head = format_html('<summary>{}{}<span class="folded"> … {} {}</span></summary>', name, first, node.text, last)
    is_open = " open" if depth < OPEN_DEPTH else ""
    return format_html('<details{}>{}<div class="members">{}</div>{}</details>', is_open, head, inner, last)
