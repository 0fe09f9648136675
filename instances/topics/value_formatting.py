"""Formatting of values of settings: durations and sizes in the unit that a person would use, choices by their label."""

from __future__ import annotations

from django.utils.translation import gettext as _

from instances.topics.settings import SettingDescription, ValueKind, is_no_limit

DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
# Units with the minimum count for which each is used; a value must be a multiple of its unit.
DURATION_UNITS = ((DAY_MS, 2), (HOUR_MS, 1), (MINUTE_MS, 1), (SECOND_MS, 1))
SIZE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def format_duration(duration_ms: int) -> str:
    """Returns the exact duration in one unit: 7 d, 36 h, 90 min, 1,500 ms."""
    for unit_ms, count_min in DURATION_UNITS:
        if duration_ms % unit_ms == 0 and duration_ms >= count_min * unit_ms:
            return _duration_format(unit_ms) % {"n": f"{duration_ms // unit_ms:,}"}
    return _("%(n)s ms") % {"n": f"{duration_ms:,}"}


def format_size(size_bytes: int) -> str:
    """Returns the exact size: 1.5 GB, 1,048,588 B."""
    for factor, name in SIZE_UNITS:
        if size_bytes >= factor and size_bytes * 10 % factor == 0:
            return f"{size_bytes / factor:,.1f}".removesuffix(".0") + f" {name}"
    return f"{size_bytes:,} B"


def format_value(setting: SettingDescription, value: str) -> str:
    """Returns a value as a page shows it; an invalid value is returned unchanged."""
    if setting.kind is ValueKind.CHOICE:
        return str(dict(setting.choices).get(value, value))
    try:
        number = int(value)
    except ValueError:
        return value
    if is_no_limit(setting, number):
        return _("no limit")
    if setting.kind is ValueKind.SPAN:
        return format_duration(number)
    if setting.kind is ValueKind.SIZE:
        return format_size(number)
    if setting.kind is ValueKind.RATE:
        return f"{format_size(number)}/s"
    return f"{number:,}"


def _duration_format(unit_ms: int) -> str:
    return {DAY_MS: _("%(n)s d"), HOUR_MS: _("%(n)s h"), MINUTE_MS: _("%(n)s min"), SECOND_MS: _("%(n)s s")}[unit_ms]
