"""Formatting of numbers, durations and instants for the console. Pure, apart from the active language and time zone.

1 kB = 10^3 B, 1 MB = 10^6 B, 1 GB = 10^9 B. Thousands are separated by comma in every language, units by a space.
Unknown values are a dash, zero is 0.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from tenants.currencies import amount_digits, rounded

UNKNOWN = "—"
BYTE_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
MEGABYTE = 10**6
KILOBYTE = 10**3
RATE_MEGABYTES_FROM = 100_000  # bytes/s; rates below 0.1 MB/s are shown in kB/s
DELAY_SECONDS_FROM_MS = 10_000
_CALENDAR_ENDS_MS = 253_402_128_000_000  # a day before the last one, which is incomplete in some time zones
CURRENCY_SIGNS = {"EUR": "€", "USD": "$", "CNY": "¥", "GBP": "£"}
UNIT_PRICE_DIGITS_MIN = 4
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


class Utilization(NamedTuple):
    """Figure and its limit, formatted in the same unit."""

    figure: str
    limit: str
    unit: str


def count(value: float | None) -> str:
    """Formats a count: `1204` becomes `1,204`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def _unit_for(amount: float) -> tuple[str, int]:
    return next(((name, size) for name, size in BYTE_UNITS if amount >= size), ("B", 1))


def _decimals(amount: float) -> int:
    return 0 if amount >= 100 or amount == int(amount) else (1 if amount >= 10 else 2)


def size(value_bytes: float | None) -> str:
    """Formats bytes in the largest unit that gives at least 1: `3.82 TB`, `18.9 GB`, `512 B`."""
    if value_bytes is None:
        return UNKNOWN
    name, unit = _unit_for(value_bytes)
    amount = value_bytes / unit
    return f"{amount:,.{_decimals(amount)}f} {name}"


def rate(bytes_per_s: float | None) -> str:
    """Formats a rate: `26.4 MB/s`, below 0.1 MB/s `18.0 kB/s`."""
    if bytes_per_s is None:
        return UNKNOWN
    if bytes_per_s == 0:
        return "0 MB/s"
    if bytes_per_s < RATE_MEGABYTES_FROM:
        return f"{bytes_per_s / KILOBYTE:,.1f} kB/s"
    return f"{bytes_per_s / MEGABYTE:,.1f} MB/s"


def rate_limit(bytes_per_s: float | None) -> str:
    """Formats a limit without trailing zeros: `40 MB/s`, `1.5 MB/s`."""
    if bytes_per_s is None:
        return UNKNOWN
    amount = bytes_per_s / MEGABYTE
    if amount < 0.1:
        return f"{bytes_per_s / KILOBYTE:,.10g} kB/s"
    return f"{amount:,.1f}".removesuffix(".0") + " MB/s"


def quota_limit(value: float | None, quota: str) -> str:
    """Formats a limit in the unit of its quota: `40 MB/s`, `25 % of a broker's time`, `5 partitions/s`."""
    if value is None:
        return UNKNOWN
    values = {"n": f"{value:,.10g}"}
    if quota == "request_percentage":
        return _("%(n)s %% of a broker's time") % values
    if quota == "controller_mutation_rate":
        return _("%(n)s partitions/s") % values
    return rate_limit(value)


def rate_use(bytes_per_s: float | None, limit_mb_s: float) -> Utilization:
    """Formats a rate in the unit of its limit: `Utilization("26.4", "40", "MB/s")`."""
    figure = UNKNOWN if bytes_per_s is None else f"{bytes_per_s / MEGABYTE:,.1f}"
    return Utilization(figure, f"{limit_mb_s:,.10g}", "MB/s")


def size_use(used_bytes: float | None, limit_bytes: float) -> Utilization:
    """Formats a size in the unit of its limit: `Utilization("9.90", "12", "TB")`."""
    name, unit = _unit_for(limit_bytes)
    figure = UNKNOWN if used_bytes is None else f"{used_bytes / unit:,.2f}"
    return Utilization(figure, f"{limit_bytes / unit:,.10g}", name)


def delay(milliseconds: float | None) -> str:
    """Formats a delay: `184 ms`; from 10 s on in seconds."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < DELAY_SECONDS_FROM_MS:
        return f"{milliseconds:,.0f} ms"
    return f"{milliseconds / 1_000:,.1f} s"


def span(seconds: float | None) -> str:
    """Formats a duration with at most two parts: `3 min 4 s`, `28 h`, `0.7 s`."""
    if seconds is None:
        return UNKNOWN
    if seconds < MINUTE_S:
        return _("%(s)s s") % {"s": f"{seconds:.1f}".removesuffix(".0") if seconds < 10 else f"{seconds:.0f}"}
    whole_s = int(seconds)
    if whole_s < HOUR_S:
        minutes, left_s = divmod(whole_s, MINUTE_S)
        return _("%(m)d min %(s)d s") % {"m": minutes, "s": left_s} if left_s else _("%(m)d min") % {"m": minutes}
    if whole_s < 2 * DAY_S:
        hours, left_s = divmod(whole_s, HOUR_S)
        minutes = left_s // MINUTE_S
        return _("%(h)d h %(m)d min") % {"h": hours, "m": minutes} if minutes else _("%(h)d h") % {"h": hours}
    return _("%(d)d d") % {"d": whole_s // DAY_S}


def from_ms(timestamp_ms: int | None) -> datetime | None:
    """Converts milliseconds since 1970 to an instant.

    None stays None, and so do values outside the calendar, since clients may send arbitrary ones.
    """
    if timestamp_ms is None or not 0 <= timestamp_ms < _CALENDAR_ENDS_MS:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1_000, tz=UTC)


def clock(instant: datetime | None) -> str:
    """Formats local time with seconds, with the date unless it is today: `14:02:37`, `20 Nov 2026, 14:02:37`."""
    if instant is None:
        return UNKNOWN
    local = timezone.localtime(instant)
    if local.date() == timezone.localdate():
        return f"{local:%H:%M:%S}"
    return _("%(day)s, %(time)s") % {"day": day(instant), "time": f"{local:%H:%M:%S}"}


def day(instant: datetime | None) -> str:
    """Formats a date: `20 Nov 2026`, in Chinese 2026 年 11 月 20 日."""
    # Translators: a date in Django's format letters.
    return UNKNOWN if instant is None else date_format(timezone.localtime(instant), _("j M Y"))


def utc(instant: datetime | None) -> str:
    """Formats the exact instant in UTC, for tooltips and details."""
    return UNKNOWN if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def money(amount: Decimal | None, currency: str) -> str:
    """Formats an amount with the decimals of its currency: `€ 564.94`, `JPY 1,042`. Credits have a minus sign."""
    return UNKNOWN if amount is None else _signed(rounded(amount, currency), currency, amount_digits(currency))


def unit_price(amount: Decimal | None, currency: str) -> str:
    """Formats a price with all its decimals, but at least 4: `€ 0.0600`, `€ 0.00014`."""
    return UNKNOWN if amount is None else _signed(amount, currency, UNIT_PRICE_DIGITS_MIN)


def quantity(value: Decimal | None) -> str:
    """Formats a quantity with all its decimals: `20,832,000`, `16.666666667`."""
    return UNKNOWN if value is None else f"{value:,.{_decimals_of(value)}f}"


def _signed(amount: Decimal, currency: str, decimals_min: int) -> str:
    sign = "−" if amount < 0 else ""
    shown = f"{abs(amount):,.{max(decimals_min, _decimals_of(amount))}f}"
    return f"{sign}{CURRENCY_SIGNS.get(currency, currency)} {shown}"


def _decimals_of(value: Decimal) -> int:
    """Returns the number of decimals without trailing zeros."""
    exponent = Decimal(value).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
