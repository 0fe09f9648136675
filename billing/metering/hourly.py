"""Conversion of the counts of an hour into input of rating: pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from billing.models.usage import Direction, Gauge
from billing.rating.terms import HourUsage

SECONDS_PER_HOUR = 3_600


def hour_usage(hour: datetime, counted: Mapping[str, int]) -> HourUsage:
    """Returns the usage of an hour. `counted` has the values of `UsageHour` by direction or gauge, in their units."""
    return HourUsage(
        hour=hour,
        bytes_in=counted.get(Direction.PRODUCE, 0),
        bytes_out=counted.get(Direction.CONSUME, 0),
        stored_byte_hours=Decimal(counted.get(Gauge.STORED, 0)),
        partition_hours=Decimal(counted.get(Gauge.PARTITIONS, 0)) / SECONDS_PER_HOUR,
        connections_peak=counted.get(Gauge.CONNECTIONS, 0),
    )
