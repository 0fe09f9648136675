"""Inputs of rating as JSON beside the invoice, from which every amount can be recomputed after prices and sizes change.

Decimals and instants are strings, so that no precision is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from billing.rating import engine, version_1
from billing.rating.terms import (
    Agreement,
    Bill,
    Component,
    Discount,
    HourUsage,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    RatePoint,
    Scheme,
    SizeSpan,
    TaxChange,
    Tier,
)

# Version of the rating rules and of the JSON. Existing invoices keep theirs.
VERSION = 3
VERSIONS = (1, 2, VERSION)
# Since this version tax rates may change within a period.
TAX_CHANGES_SINCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All arguments of `billing.rating.engine.rate`, and the version of the rating rules."""

    period: Period
    usage: Sequence[InstanceUsage]
    prices: Sequence[PriceList]
    agreement: Agreement
    version: int = VERSION

    @property
    def has_percentiles(self) -> bool:
        """True if a price needs five-minute sums."""
        return any(component.meter is Meter.BANDWIDTH_P95 for prices in self.prices for component in prices.components)

    def compute_bill(self, until: datetime | None = None) -> Bill:
        """Returns the bill of the period, or of its hours before `until`. Raises `NoPrice`."""
        if self.version == 1:
            bill = version_1.rate(self.period, self.usage, self.prices, self.agreement)
            return replace(bill, lines=[replace(line, tax_percent=self.agreement.tax_percent) for line in bill.lines])
        return engine.rate(self.period, self.usage, self.prices, self.agreement, until=until)


def to_json(inputs: Inputs) -> dict[str, Any]:
    """Returns the inputs as values of JSON."""
    return {
        "version": inputs.version,
        "period": _json_value(asdict(inputs.period)),
        "usage": [_usage_to_json(usage) for usage in inputs.usage],
        "prices": [_json_value(asdict(price_list)) for price_list in inputs.prices],
        "agreement": _agreement_to_json(inputs),
    }


def _agreement_to_json(inputs: Inputs) -> Any:
    raw = _json_value(asdict(inputs.agreement))
    if inputs.version < TAX_CHANGES_SINCE:
        del raw["tax_changes"]
    return raw


def _usage_to_json(usage: InstanceUsage) -> dict[str, Any]:
    """Converts usage. Hours and points become lists instead of objects, because there may be thousands of each."""
    return {
        "instance_id": usage.instance_id,
        "spans": [_json_value(asdict(span)) for span in usage.spans],
        "hours": [
            [
                hour.hour.isoformat(), hour.bytes_in, hour.bytes_out, str(hour.stored_byte_hours),
                str(hour.partition_hours), hour.connections_peak,
            ]
            for hour in usage.hours
        ],
        "rate_points": [[point.start.isoformat(), point.bytes_in, point.bytes_out] for point in usage.rate_points],
    }  # fmt: skip


def from_json(raw: Mapping[str, Any]) -> Inputs:
    """Parses what `to_json` returned. Raises `ValueError` for an unknown version."""
    if raw.get("version") not in VERSIONS:
        raise ValueError(f"inputs of an invoice of unknown version {raw.get('version')!r}")
    return Inputs(
        period=_period(raw["period"]),
        usage=[_usage(usage) for usage in raw["usage"]],
        prices=[_price_list(price_list) for price_list in raw["prices"]],
        agreement=_agreement(raw["agreement"]),
        version=raw["version"],
    )


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _period(raw: Mapping[str, Any]) -> Period:
    return Period(start=datetime.fromisoformat(raw["start"]), end=datetime.fromisoformat(raw["end"]))


def _usage(raw: Mapping[str, Any]) -> InstanceUsage:
    return InstanceUsage(
        instance_id=raw["instance_id"],
        spans=[
            SizeSpan(**(span | {"start": datetime.fromisoformat(span["start"]), "end": _instant(span["end"])}))
            for span in raw["spans"]
        ],
        hours=[
            HourUsage(
                hour=datetime.fromisoformat(hour),
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                stored_byte_hours=Decimal(stored),
                partition_hours=Decimal(partitions),
                connections_peak=connections,
            )
            for hour, bytes_in, bytes_out, stored, partitions, connections in raw["hours"]
        ],
        rate_points=[
            RatePoint(start=datetime.fromisoformat(start), bytes_in=bytes_in, bytes_out=bytes_out)
            for start, bytes_in, bytes_out in raw["rate_points"]
        ],
    )


def _price_list(raw: Mapping[str, Any]) -> PriceList:
    return PriceList(
        plan=raw["plan"],
        currency=raw["currency"],
        effective_from=datetime.fromisoformat(raw["effective_from"]),
        components=[
            Component(
                meter=Meter(component["meter"]),
                scheme=Scheme(component["scheme"]),
                tiers=[
                    Tier(
                        up_to=None if tier["up_to"] is None else Decimal(tier["up_to"]),
                        unit_price=Decimal(tier["unit_price"]),
                        flat=Decimal(tier["flat"]),
                    )
                    for tier in component["tiers"]
                ],
                included=Decimal(component["included"]),
                commit=Decimal(component["commit"]),
                overage_price=None if component["overage_price"] is None else Decimal(component["overage_price"]),
            )
            for component in raw["components"]
        ],
    )


def _agreement(raw: Mapping[str, Any]) -> Agreement:
    return Agreement(
        currency=raw["currency"],
        discounts=[
            Discount(
                code=discount["code"],
                percent=Decimal(discount["percent"]),
                amount=Decimal(discount["amount"]),
                start=_instant(discount["start"]),
                end=_instant(discount["end"]),
            )
            for discount in raw["discounts"]
        ],
        minimum=Decimal(raw["minimum"]),
        tax_percent=Decimal(raw["tax_percent"]),
        tax_changes=[
            TaxChange(effective_from=datetime.fromisoformat(tax["effective_from"]), percent=Decimal(tax["percent"]))
            for tax in raw.get("tax_changes", ())
        ],
    )
