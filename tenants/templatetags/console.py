"""Template tags and filters: icons, states, meters, numbers, times, form fields, and links that appear only if their
page exists.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from json import dumps
from typing import Any

from django import template
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple, HiddenInput, Textarea
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tenants import formatting
from tenants.choices import Theme
from tenants.scope_groups import in_words
from tenants.wording import localized

register = template.Library()

HOT_PERCENT = 80
FULL_PERCENT = 100
THEME_COOKIE = "penstock_theme"
STYLE_SHEETS = (
    "tokens", "base", "shell", "controls", "meter", "chart", "throttle", "table", "form", "steps", "snippet", "groups",
    "messages", "notices", "help",
)  # fmt: skip

PHASES = {
    "requested": (gettext_lazy("Requested"), '<circle cx="5" cy="5" r="3.6"/>'),
    "provisioning": (gettext_lazy("Provisioning"), '<path d="M8.6 5A3.6 3.6 0 1 1 5 1.4"/>'),
    "running": (gettext_lazy("Running"), '<circle cx="5" cy="5" r="4"/>'),
    "updating": (gettext_lazy("Updating"), '<path d="M2 6.5 5 3l3 3.5"/>'),
    "suspended": (gettext_lazy("Suspended"), '<path d="M3 1.5v7M7 1.5v7"/>'),
    "deleting": (gettext_lazy("Deleting"), '<path d="M1.5 5h7"/>'),
    "deleted": (gettext_lazy("Deleted"), '<path d="M1.5 5h7"/>'),
    "failed": (gettext_lazy("Failed"), '<path d="M2 2l6 6M8 2 2 8"/>'),
}

register.filter("count", formatting.count)
register.filter("size", formatting.size)
register.filter("rate", formatting.rate)
register.filter("rate_limit", formatting.rate_limit)
register.filter("quota_limit", formatting.quota_limit)
register.filter("delay", formatting.delay)
register.filter("span", formatting.span)
register.filter("clock", formatting.clock)
register.filter("day", formatting.day)
register.filter("utc", formatting.utc)
register.filter("localized", localized)
register.filter("scopes_in_words", in_words)


@register.filter
def from_ms(timestamp_ms: int | None) -> datetime | None:
    """Converts milliseconds since 1970 to an instant."""
    return formatting.from_ms(timestamp_ms)


@register.filter
def unit_price(amount: Decimal | None, currency: str) -> str:
    """Formats a price with all its decimals, but at least 4."""
    return formatting.unit_price(amount, currency)


@register.filter
def quantity(value: Decimal | None) -> str:
    """Formats a quantity with all its decimals."""
    return formatting.quantity(value)


@register.filter
def money(amount: Decimal | None, currency: str) -> str:
    """Formats an amount with the decimals of its currency."""
    return formatting.money(amount, currency)


@register.filter
def json(value: Any) -> str:
    """Returns JSON for a data attribute; the template escapes it."""
    return dumps(value, separators=(",", ":"))


@register.filter
def minute_utc(moment: datetime | None) -> str:
    """Formats date and time in UTC: `2026-11-20 14:05`."""
    return formatting.UNKNOWN if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


@register.filter
def time_utc(moment: datetime | None) -> str:
    """Formats the time of day in UTC: `14:05`."""
    return formatting.UNKNOWN if moment is None else f"{moment.astimezone(UTC):%H:%M}"


@register.filter
def day_utc(moment: datetime | None) -> str:
    """Formats a date in UTC: `2026-11-01`."""
    return formatting.UNKNOWN if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d}"


@register.filter
def milliseconds(seconds: float) -> int:
    """Converts seconds to milliseconds, for scripts."""
    return round(seconds * 1_000)


@register.filter
def lookup(mapping: dict[str, Any], key: str) -> Any:
    """Returns `mapping[key]`, or None."""
    return mapping.get(key) if mapping else None


@register.simple_tag
def comma() -> str:
    """Returns the separator of two facts in a line."""
    return _(", ")


@register.simple_tag
def style_sheets() -> SafeString:
    """Returns links to the style sheets, those with design tokens first."""
    return format_html_join(
        "\n", '<link rel="stylesheet" href="{}">', ((static(f"penstock/css/{name}.css"),) for name in STYLE_SHEETS)
    )


@register.simple_tag(takes_context=True)
def in_tenant(context: dict[str, Any]) -> SafeString:
    """Renders a hidden form field with the tenant (`console_page` reads it)."""
    return format_html('<input type="hidden" name="in_tenant" value="{}">', context["actor"].tenant.pk)


@register.simple_tag(takes_context=True)
def theme(context: dict[str, Any]) -> str:
    """Returns the theme of the user, or that of the cookie for visitors; that of the system if none is chosen."""
    request = context.get("request")
    if request is None:
        return Theme.SYSTEM.value
    user = getattr(request, "user", None)
    chosen = user.theme if user is not None and user.is_authenticated else request.COOKIES.get(THEME_COOKIE, "")
    return chosen if chosen in Theme.values else Theme.SYSTEM.value


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """Renders an icon of the sprite; decorative, so hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', static("penstock/img/icons.svg"), name
    )


@register.simple_tag
def mark() -> SafeString:
    """Renders the logo: a P made of a gate's stem and a half-full pipe."""
    return mark_safe(
        '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true">'
        '<path class="water" d="M8.6 11.4h9.8a4.9 4.9 0 0 1-9.8 0z"/><circle class="pipe" cx="13.5" cy="10.5" r="6.4"/>'
        '<rect class="stem" x="4" y="2" width="3.4" height="20" rx="1.2"/></svg>'
    )


@register.simple_tag
def pill(phase: str) -> SafeString:
    """Renders the state of an instance as icon and word, so that it does not depend on colour."""
    label, shape = PHASES.get(phase, (phase, ""))
    return format_html(
        '<span class="pill {}"><svg viewBox="0 0 10 10" aria-hidden="true">{}</svg>{}</span>',
        phase, mark_safe(shape), label,  # noqa: S308  shapes are constants above
    )  # fmt: skip


@register.simple_tag
def meter(value: float | None, limit: float | None, label: str, peak: float | None = None) -> SafeString:
    """Renders a use against its limit. `label` describes it for screen readers; `peak` is shown as a pale part."""
    percent = 0.0 if not value or not limit else min(100.0, 100.0 * value / limit)
    peak_percent = 0.0 if not peak or not limit else min(100.0, 100.0 * peak / limit)
    level_class = "full" if percent >= FULL_PERCENT else ("hot" if percent >= HOT_PERCENT else "")
    peak_part = (
        format_html('<rect class="peak" width="{}%" height="6"/>', f"{peak_percent:.1f}") if peak_percent else ""
    )
    return format_html(
        '<span class="meter {}" role="meter" aria-valuenow="{}" aria-valuemin="0" aria-valuemax="100" aria-label="{}">'
        '<svg aria-hidden="true">{}<rect class="now" width="{}%" height="6"/></svg></span>',
        level_class, round(percent), label, peak_part, f"{percent:.1f}",
    )  # fmt: skip


@register.simple_tag
def progress(percent: float, label: str) -> SafeString:
    """Renders progress; unlike a meter it does not warn near the end."""
    return format_html(
        '<span class="meter" role="progressbar" aria-valuenow="{}" aria-valuemin="0" aria-valuemax="100" '
        'aria-label="{}"><svg aria-hidden="true"><rect class="now" width="{}%" height="6"/></svg></span>',
        round(percent), label, f"{percent:.1f}",
    )  # fmt: skip


@register.simple_tag
def instant(moment: datetime | None) -> SafeString | str:
    """Renders local time with seconds; UTC on hover."""
    if moment is None:
        return formatting.UNKNOWN
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), formatting.utc(moment), formatting.clock(moment)
    )


@register.simple_tag
def copyable(value: str, spoken_label: str = "") -> SafeString:
    """Renders a value that is copied by a click; screen readers read `spoken_label`, by default "Copy", before it."""
    return format_html(
        '<button type="button" class="copy" data-copy="{}" aria-label="{} {}"><span>{}</span>{}</button>',
        value, spoken_label or _("Copy"), value, value, icon("copy"),
    )  # fmt: skip


@register.inclusion_tag("console/parts/nav_link.html", takes_context=True)
def nav_link(
    context: dict[str, Any], section: str, label: str, symbol: str, page: str, *args: str, **options: Any
) -> dict[str, Any]:
    """Returns a link of the side navigation with the icon `symbol`; its `url` is None, and nothing is rendered, if the
    page does not exist or the actor lacks the scope of the option `scope`. The option `key` is the keyboard shortcut.
    """
    scope = options.get("scope")
    if scope and scope not in context.get("can", ()):
        return {"url": None}
    try:
        url = reverse(page, args=args)
    except NoReverseMatch:
        return {"url": None}
    counts = context.get("counts", {})
    return {
        "url": url,
        "label": label,
        "symbol": symbol,
        "is_here": context.get("section") == section,
        "count": counts.get(section),
        "needs_you": section in context.get("needs_you", ()),
        "key": options.get("key", ""),
    }


@register.filter
def may(can: frozenset[str] | None, scope: str) -> bool:
    """Tests a scope: `{% if can|may:"topics:write" %}`."""
    return bool(can) and scope in can


@register.inclusion_tag("console/parts/field.html")
def field(bound: BoundField, unit: str = "", *, hide_help: bool = False, **attributes: str) -> dict[str, Any]:
    """Returns label, help, control with unit, and errors. Keyword arguments become attributes (`_` to `-`)."""
    widget = bound.field.widget
    attrs = {name.replace("_", "-"): value for name, value in attributes.items()}
    help_text = "" if hide_help else bound.help_text
    description_ids = [f"{bound.auto_id}-help"] if help_text else []
    if bound.errors:
        attrs["aria-invalid"] = "true"
        description_ids.append(f"{bound.auto_id}-error")
    if description_ids:
        attrs["aria-describedby"] = " ".join(description_ids)
    kind = "input"
    if isinstance(widget, HiddenInput):
        kind = "hidden"
    elif isinstance(widget, CheckboxInput):
        kind = "check"
    elif isinstance(widget, CheckboxSelectMultiple):
        kind = "checks"
    elif isinstance(widget, Textarea):
        kind = "area"
        attrs["class"] = "area mono"
    return {
        "bound": bound,
        "control": bound.as_widget(attrs=attrs) if kind != "checks" else "",
        "unit": unit,
        "kind": kind,
        "help_text": help_text,
    }
