"""Template tags and filters for pages of consumer groups and transactions: states, trends, addresses, time behind."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances.groups.lag_history import SPAN_MS, Sample, TimeLag
from tenants import formatting
from tenants.templatetags.console import PHASES
from tenants.wording import localized

register = template.Library()

SPARK_WIDTH, SPARK_HEIGHT = 84.0, 22.0
SPARK_SAMPLES_MIN = 2

# Phase whose pill shows a state of Kafka, and the label of the state.
STATES = {
    "Stable": ("running", gettext_lazy("Stable")),
    "PreparingRebalance": ("updating", gettext_lazy("Rebalancing")),
    "CompletingRebalance": ("updating", gettext_lazy("Rebalancing")),
    "Empty": ("requested", gettext_lazy("No members")),
    "Dead": ("deleting", gettext_lazy("Dead")),
    "Ongoing": ("updating", gettext_lazy("Ongoing")),
    "PrepareCommit": ("provisioning", gettext_lazy("Committing")),
    "PrepareAbort": ("provisioning", gettext_lazy("Aborting")),
    "PrepareEpochFence": ("provisioning", gettext_lazy("Fencing")),
    "CompleteCommit": ("running", gettext_lazy("Committed")),
    "CompleteAbort": ("deleting", gettext_lazy("Aborted")),
}
NO_TRANSACTION = ("requested", gettext_lazy("None yet"))


def state_pill(style: str, label: str) -> SafeString:
    """Renders a pill in the style of a phase, with another label."""
    return format_html(
        '<span class="pill {}"><svg viewBox="0 0 10 10" aria-hidden="true">{}</svg>{}</span>',
        style, mark_safe(PHASES[style][1]), label,  # noqa: S308  shapes are constants
    )  # fmt: skip


@register.simple_tag
def group_pill(state: str) -> SafeString:
    """Renders the state of a group as shape and label, never as colour alone."""
    return state_pill(*STATES.get(state, ("requested", state or _("not known"))))


@register.simple_tag
def transaction_pill(state: str) -> SafeString:
    """Renders the state of a transactional id; `Empty` stands for one that has had no transaction."""
    return state_pill(*(NO_TRANSACTION if state == "Empty" else STATES.get(state, ("requested", state))))


@register.simple_tag
def group_url(page: str, instance_id: str, group: str) -> str:
    """Returns the address of a group's page. The name is in the query, because it may have slashes and `..`."""
    return f"{reverse(page, args=[instance_id])}?{urlencode({'group': group})}"


@register.simple_tag
def transaction_url(page: str, instance_id: str, transactional_id: str) -> str:
    """Returns the address of a transactional id's page."""
    return f"{reverse(page, args=[instance_id])}?{urlencode({'id': transactional_id})}"


@register.simple_tag
def spark(samples: Sequence[Sample]) -> SafeString | str:
    """Renders the last quarter of an hour as a line from zero; empty below two samples."""
    if len(samples) < SPARK_SAMPLES_MIN:
        return ""
    end_ms = samples[-1][0]
    largest = max(value for _at, value in samples) or 1
    points = [
        (SPARK_WIDTH * (1 - (end_ms - at_ms) / SPAN_MS), 1 + (SPARK_HEIGHT - 2) * (1 - value / largest))
        for at_ms, value in samples
    ]
    line = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
    first_x, last_x = points[0][0], points[-1][0]
    return format_html(
        '<svg class="spark out" viewBox="0 0 84 22" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="area" d="M{} {} L{} L{} {} Z"/><path d="M{}"/></svg>',
        f"{first_x:.1f}", SPARK_HEIGHT, line, f"{last_x:.1f}", SPARK_HEIGHT, line,
    )  # fmt: skip


@register.filter
def behind(value: TimeLag | None) -> str:
    """Returns the age of the next message to be read: `4 s`, `over 15 min`, or a dash if it is unknown."""
    if value is None:
        return formatting.UNKNOWN
    age_text = formatting.span(round(value.age_s))
    return _("over %(span)s") % {"span": age_text} if value.at_least else age_text


@register.filter
def translated(sentence: str) -> str:
    """Returns a sentence of a service in the reader's language."""
    return localized(sentence)


@register.filter
def age(milliseconds: int | None) -> str:
    """Returns the text for a duration in ms."""
    return formatting.UNKNOWN if milliseconds is None else formatting.span(milliseconds / 1_000)


@register.filter
def signed(value: int | None) -> str:
    """Returns a number with its sign: `+12`, `−40`, `0`."""
    if value is None:
        return formatting.UNKNOWN
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{abs(value):,}"
