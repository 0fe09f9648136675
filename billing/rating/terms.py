"""The words of rating: what was used, what it costs, and the lines that come of it.

Money and quantities are `Decimal`. Instants are aware and in UTC. Every interval is half open: `[start, end)`.
1 MB = 10^6 bytes, 1 GB = 10^9 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum


class Meter(StrEnum):
    """What is measured, and the unit in which a price is said.

    The first six are levels: what an hour had, times the hour. The other three belong to a billing period as a whole.
    """

    INSTANCE = "instance"  # hours in which the instance was there: hour
    BANDWIDTH = "bandwidth"  # bandwidth bought: MB/s·h
    STORAGE = "storage"  # storage bought: GB·h
    PARTITIONS = "partitions"  # partitions of all topics: partition·h
    STORED = "stored"  # what all replicas held: GB·h
    CONNECTIONS = "connections"  # most connections open at once in the hour: connection·h
    BYTES_IN = "bytes_in"  # record-batch bytes leaders accepted: GB
    BYTES_OUT = "bytes_out"  # record-batch bytes written to sockets: GB
    BANDWIDTH_P95 = "bandwidth_p95"  # 95th percentile of five-minute averages, the larger direction: MB/s


class Scheme(StrEnum):
    """How tiers are read."""

    GRADUATED = "graduated"  # each unit at the price of the tier it falls in; one tier is a plain price per unit
    VOLUME = "volume"  # all units at the price of the tier the sum falls in


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Units up to and with `up_to` (None: without end) at `unit_price`, and `flat` once the tier is entered."""

    up_to: Decimal | None
    unit_price: Decimal
    flat: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The price of one meter.

    `included` is free: per hour for levels, per billing period for the others. `commit` is the least quantity that is
    charged per period (`BANDWIDTH_P95`: what was committed to); what exceeds it is charged at `overage_price` where one
    is given. What belongs to a period is that of a whole one, and is prorated by the hours on the plan.
    """

    meter: Meter
    scheme: Scheme
    tiers: Sequence[Tier]
    included: Decimal = Decimal(0)
    commit: Decimal = Decimal(0)
    overage_price: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What a plan costs from an instant on, until the next list of the same plan and currency begins."""

    plan: str
    currency: str
    effective_from: datetime
    components: Sequence[Component]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSpan:
    """For how long an instance had a size. `end` is None while it has it. Spans of an instance do not overlap.

    `only_storage` while it is suspended: what is stored is kept, and nothing else is charged.
    """

    plan: str
    bandwidth_mb_s: int
    storage_gb: int
    start: datetime
    end: datetime | None
    only_storage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HourUsage:
    """What an instance used in the UTC hour that begins at `hour`."""

    hour: datetime
    bytes_in: int = 0
    bytes_out: int = 0
    stored_byte_hours: Decimal = Decimal(0)
    partition_hours: Decimal = Decimal(0)
    connections_peak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """Bytes of five minutes, from `start` on. Minutes without traffic need no point."""

    start: datetime
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUsage:
    """All there is to charge of one instance in one billing period, oldest first."""

    instance_id: str
    spans: Sequence[SizeSpan]
    hours: Sequence[HourUsage] = ()
    rate_points: Sequence[RatePoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """`percent` of all lines off, and at most `amount` more, of periods that begin in `[start, end)`."""

    code: str
    percent: Decimal = Decimal(0)
    amount: Decimal = Decimal(0)
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxChange:
    """A rate of tax that is in force from an instant on, until the next change. An hour is taxed at the rate that is in
    force when it begins.
    """

    effective_from: datetime
    percent: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a tenant and the seller agreed on, over what the plans cost. `tax_percent` is in force before the first of
    `tax_changes`, which are in the order of time.
    """

    currency: str
    discounts: Sequence[Discount] = ()
    minimum: Decimal = Decimal(0)
    tax_percent: Decimal = Decimal(0)
    tax_changes: Sequence[TaxChange] = ()

    def tax_percent_at(self, hour: datetime) -> Decimal:
        begun = [each.percent for each in self.tax_changes if each.effective_from <= hour]
        return begun[-1] if begun else self.tax_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A billing period; both ends are full UTC hours."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedLine:
    """`quantity` of `unit` at `unit_price` is `amount`, which has cents; `start` and `end` say which hours it covers.

    `kind` is `usage`, `discount`, `minimum` or `adjustment`. `instance_id` and `plan` are empty in lines that concern
    the whole bill. `unit_price` has as many decimals as the price list gives; in a tier it is the price of the tier.
    `hours` is set where terms of a month are prorated: hours the instance was on the plan. `tax_percent` is the rate of
    tax that was in force in these hours.
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
    """Tax of one rate: `base` is the sum of the lines that are taxed at it, before tax."""

    percent: Decimal
    base: Decimal
    tax: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Bill of a period. `subtotal` is the sum of the lines to the cent, `total` is `subtotal` and `tax`, the sum of
    `taxes`.
    """

    currency: str
    period: Period
    lines: Sequence[RatedLine]
    subtotal: Decimal
    tax: Decimal
    total: Decimal
    taxes: Sequence[TaxSum] = ()
