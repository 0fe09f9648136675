"""Whether an invoice can be worked out again: from what was rated, from the usage rows as they are, from the lake."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from django.conf import settings

from billing.invoices.adjustments import Adjustment, as_known_now, missing
from billing.invoices.snapshot import Inputs, from_json
from billing.lake import replay
from billing.lake.address import open_lake
from billing.metering.levels import hour_usage
from billing.models import Direction, Invoice, InvoiceLine, LakeFile
from billing.rating.hours import HOUR, floor_hour
from billing.rating.percentile import POINT
from billing.rating.taxes import tax_sums
from billing.rating.terms import HourUsage, RatePoint

NOTHING = Decimal(0)
MILLISECOND = timedelta(milliseconds=1)
# By instance and instant, what was counted.
Moved = dict[tuple[str, datetime], dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`source` is `inputs`, `usage` or `lake`: what the amount was worked out from. `invoiced` is what the invoice, and
    for the last two later corrections of it, charge.
    """

    source: str
    instance_id: str
    plan: str
    meter: str
    invoiced: Decimal
    recomputed: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """Equal to the cent where there are no differences. What differs from usage is a line of the next invoice.
    `is_replayed`: the lake has all of the period, and was read.
    """

    lines: int
    subtotal: Decimal
    is_replayed: bool
    differences: list[Difference]

    @property
    def is_equal(self) -> bool:
        return not self.differences


def recompute(invoice: Invoice, *, lake_rows_max: int | None = None) -> Recomputation:
    """The lake is left out where more than `lake_rows_max` of its rows would have to be read: other tenants' rows are
    passed over in days that are merged. A credit note is a decision, not a computation: its lines stand for themselves.

    Raises:
        NoPrice: usage that came late is of a plan the invoice has no price of.
        LakeBroken: a file of the lake is not what was written.
    """
    own = list(InvoiceLine.objects.filter(invoice=invoice).order_by("position"))
    found: list[Difference] = []
    replayed = None
    if invoice.inputs:
        inputs = from_json(invoice.inputs)
        found += _of_inputs(inputs, own)
        found += _of_taxes(invoice, own)
        found += [_difference("usage", each) for each in missing(invoice, as_known_now(invoice, inputs))]
        replayed = _from_lake(inputs, lake_rows_max)
        if replayed is not None:
            found += [_difference("lake", each) for each in missing(invoice, replayed)]
    subtotal = sum((line.amount for line in own), NOTHING)
    return Recomputation(lines=len(own), subtotal=subtotal, is_replayed=replayed is not None, differences=found)


def _of_inputs(inputs: Inputs, own: list[InvoiceLine]) -> list[Difference]:
    """Line by line, in their order."""
    rated = [(line.instance_id, line.plan, line.meter, line.amount) for line in inputs.rated().lines]
    kept = [(line.instance_id, line.plan, line.meter, line.amount) for line in own if line.kind != "adjustment"]
    result = []
    for number in range(max(len(rated), len(kept))):
        one = rated[number] if number < len(rated) else ("", "", "", NOTHING)
        other = kept[number] if number < len(kept) else ("", "", "", NOTHING)
        if one != other:
            named = one if number < len(rated) else other
            result.append(
                Difference(
                    source="inputs", instance_id=named[0], plan=named[1], meter=named[2], invoiced=other[3],
                    recomputed=one[3],
                )
            )  # fmt: skip
    return result


def _of_taxes(invoice: Invoice, own: list[InvoiceLine]) -> list[Difference]:
    """Tax of each rate out of the lines that have it. Lines of before say no rate."""
    if any(line.tax_percent is None for line in own):
        return []
    rounded_sums = {each.percent: each for each in tax_sums(own, invoice.currency)}
    invoiced = {each.percent: each for each in invoice.tax_sums()}
    result = []
    for percent in sorted({*rounded_sums, *invoiced}, reverse=True):
        one, other = rounded_sums.get(percent), invoiced.get(percent)
        if one != other:
            result.append(
                Difference(
                    source="inputs", instance_id="", plan="", meter=f"tax {percent.normalize():f} %",
                    invoiced=other.tax if other else NOTHING, recomputed=one.tax if one else NOTHING,
                )
            )  # fmt: skip
    return result


def _difference(source: str, found: Adjustment) -> Difference:
    line = found.line
    return Difference(
        source=source, instance_id=line.instance_id, plan=line.plan, meter=line.meter, invoiced=found.charged,
        recomputed=found.charged + line.amount,
    )  # fmt: skip


def _from_lake(inputs: Inputs, rows_max: int | None) -> Inputs | None:
    """Inputs with the hours and five-minute sums of the lake. None where it does not have all of the period, or too
    much of it.
    """
    period = inputs.period
    began = LakeFile.objects.order_by("day").values_list("day", flat=True).first()
    if began is None or began >= period.start.date():
        return None
    place = open_lake(settings.LAKE_URL)
    ids = [each.instance_id for each in inputs.usage]
    if rows_max is not None and replay.rows_to_read(place, ids, period.start, period.end) > rows_max:
        return None
    step = POINT if inputs.has_percentiles else HOUR
    by_hour: Moved = defaultdict(lambda: defaultdict(int))
    by_step: Moved = defaultdict(lambda: defaultdict(int))
    rows = replay.steps(place, ids, period.start, period.end, step // MILLISECOND)
    for instance_id, instant, direction, count in rows:
        by_hour[instance_id, floor_hour(instant)][direction] += count
        by_step[instance_id, instant][direction] += count
    hours: dict[str, list[HourUsage]] = defaultdict(list)
    for (instance_id, hour), total in sorted(by_hour.items()):
        hours[instance_id].append(hour_usage(hour, total))
    usage = [replace(each, hours=hours[each.instance_id]) for each in inputs.usage]
    if inputs.has_percentiles:
        points = _points_of(by_step)
        usage = [replace(each, rate_points=points[each.instance_id]) for each in usage]
    return replace(inputs, usage=usage)


def _points_of(moved: Moved) -> dict[str, list[RatePoint]]:
    """Points by instance, oldest first; those without bytes are left out."""
    result: dict[str, list[RatePoint]] = defaultdict(list)
    for (instance_id, point), total in sorted(moved.items()):
        bytes_in, bytes_out = total.get(Direction.PRODUCE, 0), total.get(Direction.CONSUME, 0)
        if bytes_in or bytes_out:
            result[instance_id].append(RatePoint(start=point, bytes_in=bytes_in, bytes_out=bytes_out))
    return result
