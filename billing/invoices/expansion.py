"""Reads: hours and minutes that make up a line of an invoice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import QuerySet

from billing import metered
from billing.invoices.snapshot import Inputs, from_json
from billing.models import InvoiceLine, UsageMinute
from billing.rating.hours import HOUR
from billing.rating.terms import HourUsage, SizeSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHour:
    """One hour of a line as it was rated: sizes of the instance and the usage known at that time."""

    hour: datetime
    sizes: list[SizeSpan]
    bytes_in: int
    bytes_out: int
    stored_byte_hours: Decimal
    partition_hours: Decimal
    connections_peak: int


def hours_of(line: InvoiceLine) -> list[LineHour]:
    """Returns the hours of a line, oldest first; an empty list for a line of the whole bill or a correction."""
    if not line.instance_id or line.kind != "usage":
        return []
    inputs: Inputs = from_json(line.invoice.inputs)
    usage = next((usage for usage in inputs.usage if usage.instance_id == line.instance_id), None)
    if usage is None:
        return []
    used = {hour_usage.hour: hour_usage for hour_usage in usage.hours}
    result = []
    hour = line.start
    while hour < line.end:
        sizes = [span for span in usage.spans if span.start < hour + HOUR and (span.end is None or span.end > hour)]
        had = used.get(hour)
        if had is not None or sizes:
            counted = had or HourUsage(hour=hour)
            result.append(
                LineHour(
                    hour=hour,
                    sizes=sizes,
                    bytes_in=counted.bytes_in,
                    bytes_out=counted.bytes_out,
                    stored_byte_hours=counted.stored_byte_hours,
                    partition_hours=counted.partition_hours,
                    connections_peak=counted.connections_peak,
                )
            )
        hour += HOUR
    return result


def minutes_of(line: InvoiceLine, hour: datetime) -> QuerySet[UsageMinute]:
    """Returns the minutes of an hour of the line by topic, user, client id and direction. Raises `MinutesNotKept`."""
    if not line.instance_id or not line.start <= hour < line.end:
        return UsageMinute.objects.none()
    return metered.minutes_of_hour(line.instance_id, hour)
