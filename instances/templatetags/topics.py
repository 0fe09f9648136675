"""Template filters of pages of topics."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext as _

from instances.topics.value_formatting import format_duration

register = template.Library()

UNLIMITED = -1


@register.filter
def retention(milliseconds: int | None) -> str:
    """Returns the retention in the largest unit that fits."""
    if milliseconds is None:
        return _("by key")
    return _("unlimited") if milliseconds == UNLIMITED else format_duration(milliseconds)
