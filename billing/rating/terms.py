"""Data types of rating: usage, prices and the resulting lines.

Money and quantities are `Decimal`. Instants are aware and in UTC. Every interval is half open: `[start, end)`. 1 MB =
10^6 bytes, 1 GB = 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum


class Meter(StrEnum):
    """Meters with the units of their prices.

    The first six are levels: they have a value in each hour, and are charged per hour. The other three are measured
    over the billing period.
    """

    INSTANCE = "instance"  # hours in which the instance existed: hour
    BANDWIDTH = "bandwidth"  # booked bandwidth: MB/s·h
    STORAGE = "storage"  # booked storage: GB·h
    PARTITIONS = "partitions"  # partitions of all topics: partition·h
    STORED = "stored"  # bytes stored by all replicas: GB·h
    CONNECTIONS = "connections"  # maximum number of concurrent connections in the hour: connection·h
    BYTES_IN = "bytes_in"  # record-batch bytes leaders accepted: GB
    BYTES_OUT = "bytes_out"  # record-batch bytes written to sockets: GB
    BANDWIDTH_P95 = "bandwidth_p95"  # 95th percentile of five-minute averages, the larger direction: MB/s


class Scheme(StrEnum):
    """Interpretation of tiers."""

    GRADUATED = "graduated"  # each unit at the price of its tier; a single tier is a plain price per unit
    VOLUME = "volume"  # all units at the price of the tier that the sum reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Units up to and including `up_to` (None: unbounded) at `unit_price`, plus `flat` once the tier is entered."""

    up_to: Decimal | None
    unit_price: Decimal
    flat: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Price of one meter.

    `included` is free: per hour for levels, per billing period for the others. `commit` is the minimum quantity charged
    per period (for `BANDWIDTH_P95` the committed bandwidth); units beyond it have the `overage_price`, if there is one.
    Amounts of a period apply to a whole period and are prorated by the hours on the plan.
    """

    meter: Meter
    scheme: Scheme
    tiers: Sequence[Tier]
    included: Decimal = Decimal(0)
    commit: Decimal = Decimal(0)
    overage_price: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of a plan from an instant until the next list of the same plan and currency takes effect."""

    plan: str
    currency: str
    effective_from: datetime
    components: Sequence[Component]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSpan:
    """Time span in which an instance had one size; `end` is None while it lasts. Spans of an instance do not overlap.

    `only_storage` is true while the instance is suspended: only storage is charged.
    """

    plan: str
    bandwidth_mb_s: int
    storage_gb: int
    start: datetime
    end: datetime | None
    only_storage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HourUsage:
    """Usage of an instance in the UTC hour that begins at `hour`."""

    hour: datetime
    bytes_in: int = 0
    bytes_out: int = 0
    stored_byte_hours: Decimal = Decimal(0)
    partition_hours: Decimal = Decimal(0)
    connections_peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """Bytes of the five minutes that begin at `start`. Five minutes without traffic need no point."""

    start: datetime
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUsage:
    """Sizes and usage of one instance in one billing period, as input of rating. Each list is ordered by time."""

    instance_id: str
    spans: Sequence[SizeSpan]
    hours: Sequence[HourUsage] = ()
    rate_points: Sequence[RatePoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """Discount on periods that begin in `[start, end)`: `percent` of all lines, and in addition up to `amount`."""

    code: str
    percent: Decimal = Decimal(0)
    amount: Decimal = Decimal(0)
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxChange:
    """Tax rate in force from an instant until the next change. An hour is taxed at the rate in force at its start."""

    effective_from: datetime
    percent: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Individual terms between tenant and seller, in addition to the prices of plans.

    `tax_percent` is in force before the first of `tax_changes`, which are in chronological order.
    """

    currency: str
    discounts: Sequence[Discount] = ()
    minimum: Decimal = Decimal(0)
    tax_percent: Decimal = Decimal(0)
    tax_changes: Sequence[TaxChange] = ()

    def tax_percent_at(self, hour: datetime) -> Decimal:
        percents = [change.percent for change in self.tax_changes if change.effective_from <= hour]
        return percents[-1] if percents else self.tax_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Billing period; both ends are full UTC hours."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedLine:
    """Line of a bill: `quantity` of `unit` at `unit_price` gives `amount`, rounded to the minor unit of the currency.

    `start` and `end` are the hours it covers. `kind` is `usage`, `discount`, `minimum` or `adjustment`. `instance_id`
    and `plan` are empty in lines of the whole bill. `unit_price` has the decimals of the price list; in a tier it is
    the price of the tier. `hours` is set where monthly terms are prorated: hours of the instance on the plan.
    `tax_percent` is the tax rate in force in these hours.
    """

    kind: str
    instance_id: str
    plan: str
    meter: str
    start: datetime
    end: datetime
    quantity: Decimal
    unit: str
    unit_price: Decimal
    amount: Decimal
    hours: int | None = None
    tax_percent: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxSum:
    """Tax of one rate: `base` is the sum of the lines taxed at it, before tax."""

    percent: Decimal
    base: Decimal
    tax: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Bill of a period. `subtotal` is the sum of the lines, `tax` the sum of `taxes`, `total` the sum of both."""

    currency: str
    period: Period
    lines: Sequence[RatedLine]
    subtotal: Decimal
    tax: Decimal
    total: Decimal
    taxes: Sequence[TaxSum] = ()
