"""Values of settings in words: spans and sizes in the unit that a person would use, choices by their meaning."""

from __future__ import annotations

from django.utils.translation import gettext as _

from instances.topics.settings import SettingWords, ValueKind, is_no_limit

DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
# Units with the minimum count for which each is used; a value must be a multiple of its unit.
SPANS = ((DAY_MS, 2), (HOUR_MS, 1), (MINUTE_MS, 1), (SECOND_MS, 1))
SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def span_words(milliseconds: int) -> str:
    """Exact, in one unit: 7 d, 36 h, 90 min, 1,500 ms."""
    for unit_ms, least in SPANS:
        if milliseconds % unit_ms == 0 and milliseconds >= least * unit_ms:
            return _unit_words(unit_ms) % {"n": f"{milliseconds // unit_ms:,}"}
    return _("%(n)s ms") % {"n": f"{milliseconds:,}"}


def size_words(value_bytes: int) -> str:
    """Exact: 1.5 GB, 1,048,588 B."""
    for factor, name in SIZES:
        if value_bytes >= factor and value_bytes * 10 % factor == 0:
            return f"{value_bytes / factor:,.1f}".removesuffix(".0") + f" {name}"
    return f"{value_bytes:,} B"


def value_words(setting: SettingWords, value: str) -> str:
    """A value as a page shows it; what is none is shown as it is."""
    if setting.kind is ValueKind.CHOICE:
        return str(dict(setting.choices).get(value, value))
    try:
        number = int(value)
    except ValueError:
        return value
    if is_no_limit(setting, number):
        return _("no limit")
    if setting.kind is ValueKind.SPAN:
        return span_words(number)
    if setting.kind is ValueKind.SIZE:
        return size_words(number)
    if setting.kind is ValueKind.RATE:
        return f"{size_words(number)}/s"
    return f"{number:,}"


def _unit_words(unit_ms: int) -> str:
    return {DAY_MS: _("%(n)s d"), HOUR_MS: _("%(n)s h"), MINUTE_MS: _("%(n)s min"), SECOND_MS: _("%(n)s s")}[unit_ms]
