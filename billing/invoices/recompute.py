"""Recomputation of an invoice: from its stored inputs, from the current usage rows and from the lake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from django.conf import settings

from billing.invoices.adjustments import Adjustment, adjustments_due, with_current_usage
from billing.invoices.snapshot import Inputs, from_json
from billing.lake import replay
from billing.lake.address import open_lake
from billing.metering.hourly import hour_usage
from billing.models import Direction, Invoice, InvoiceLine, LakeFile
from billing.rating.hours import HOUR, floor_hour
from billing.rating.percentile import POINT_DURATION
from billing.rating.taxes import tax_sums
from billing.rating.terms import HourUsage, RatePoint

ZERO = Decimal(0)
MILLISECOND = timedelta(milliseconds=1)
# Counted values by name, by (instance id, instant).
CounterSums = dict[tuple[str, datetime], dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference between an invoiced and a recomputed amount.

    `source` is `inputs`, `usage` or `lake`. `invoiced` is the amount of the invoice and, for the last two sources, of
    later corrections of it.
    """

    source: str
    instance_id: str
    plan: str
    meter: str
    invoiced: Decimal
    recomputed: Decimal


class ReplayOutcome(StrEnum):
    """Use of the lake by a recomputation."""

    DONE = "done"
    NOT_COVERED = "not_covered"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """Result of recomputing an invoice; without differences the amounts are equal to the cent.

    Differences from usage are adjusted on the next invoice. `replay` says whether the lake covers the period and was
    read.
    """

    lines: int
    subtotal: Decimal
    replay: ReplayOutcome
    differences: list[Difference]

    @property
    def is_equal(self) -> bool:
        return not self.differences

    @property
    def is_replayed(self) -> bool:
        return self.replay is ReplayOutcome.DONE


def recompute(invoice: Invoice, *, lake_rows_max: int | None = None) -> Recomputation:
    """Recomputes an invoice from all sources.

    The lake is skipped if more than `lake_rows_max` of its rows had to be read, including rows of other tenants in days
    that are not merged yet (`replays` reads them in the worker). A credit note is a decision and not computed, so its
    lines are not compared.

    Raises:
        NoPrice: late usage belongs to a plan of which the invoice has no price.
        LakeBroken: a file of the lake is damaged.
    """
    invoice_lines = list(InvoiceLine.objects.filter(invoice=invoice).order_by("position"))
    differences: list[Difference] = []
    outcome = ReplayOutcome.NOT_COVERED
    if invoice.inputs:
        inputs = from_json(invoice.inputs)
        differences += _compare_with_inputs(inputs, invoice_lines)
        differences += _compare_taxes(invoice, invoice_lines)
        differences += [
            _difference("usage", adjustment)
            for adjustment in adjustments_due(invoice, with_current_usage(invoice, inputs))
        ]
        if lake_covers(inputs):
            outcome = ReplayOutcome.DONE
            if lake_rows_max is not None and rows_to_read(inputs) > lake_rows_max:
                outcome = ReplayOutcome.TOO_LARGE
            else:
                differences += compare_with_lake(invoice, inputs)
    subtotal = sum((line.amount for line in invoice_lines), ZERO)
    return Recomputation(lines=len(invoice_lines), subtotal=subtotal, replay=outcome, differences=differences)


def lake_covers(inputs: Inputs) -> bool:
    """True if the first day of the lake is before the period, so that the lake has all reports of the period."""
    first_day = LakeFile.objects.order_by("day").values_list("day", flat=True).first()
    return first_day is not None and first_day < inputs.period.start.date()


def rows_to_read(inputs: Inputs) -> int:
    """Returns the number of rows of the lake that a replay of the period reads."""
    return replay.rows_to_read(
        open_lake(settings.LAKE_URL), _instance_ids(inputs), inputs.period.start, inputs.period.end
    )


def compare_with_lake(
    invoice: Invoice, inputs: Inputs, progress: Callable[[int], object] = lambda _rows: None
) -> list[Difference]:
    """Compares the invoice with the lake. `progress` is called with the number of rows read so far.

    Memory is bounded by the hours and counters of the tenant's instances.

    Raises:
        NoPrice, LakeBroken: like `recompute`.
    """
    return [
        _difference("lake", adjustment) for adjustment in adjustments_due(invoice, _with_lake_usage(inputs, progress))
    ]


def _instance_ids(inputs: Inputs) -> list[str]:
    return [usage.instance_id for usage in inputs.usage]


def _compare_with_inputs(inputs: Inputs, invoice_lines: list[InvoiceLine]) -> list[Difference]:
    """Compares the stored lines with the lines rated from the inputs, by position."""
    rated_amounts = [(line.instance_id, line.plan, line.meter, line.amount) for line in inputs.compute_bill().lines]
    invoiced_amounts = [
        (line.instance_id, line.plan, line.meter, line.amount) for line in invoice_lines if line.kind != "adjustment"
    ]
    result = []
    for number in range(max(len(rated_amounts), len(invoiced_amounts))):
        expected = rated_amounts[number] if number < len(rated_amounts) else ("", "", "", ZERO)
        stored = invoiced_amounts[number] if number < len(invoiced_amounts) else ("", "", "", ZERO)
        if expected != stored:
            labels = expected if number < len(rated_amounts) else stored
            result.append(
                Difference(
                    source="inputs", instance_id=labels[0], plan=labels[1], meter=labels[2], invoiced=stored[3],
                    recomputed=expected[3],
                )
            )  # fmt: skip
    return result


def _compare_taxes(invoice: Invoice, invoice_lines: list[InvoiceLine]) -> list[Difference]:
    """Compares the tax of each rate with the tax of the lines of that rate. Old lines without a rate are skipped."""
    if any(line.tax_percent is None for line in invoice_lines):
        return []
    recomputed_sums = {tax_sum.percent: tax_sum for tax_sum in tax_sums(invoice_lines, invoice.currency)}
    invoiced_sums = {tax_sum.percent: tax_sum for tax_sum in invoice.tax_sums()}
    result = []
    for percent in sorted({*recomputed_sums, *invoiced_sums}, reverse=True):
        expected, stored = recomputed_sums.get(percent), invoiced_sums.get(percent)
        if expected != stored:
            result.append(
                Difference(
                    source="inputs", instance_id="", plan="", meter=f"tax {percent.normalize():f} %",
                    invoiced=stored.tax if stored else ZERO, recomputed=expected.tax if expected else ZERO,
                )
            )  # fmt: skip
    return result


def _difference(source: str, adjustment: Adjustment) -> Difference:
    line = adjustment.line
    return Difference(
        source=source, instance_id=line.instance_id, plan=line.plan, meter=line.meter, invoiced=adjustment.charged,
        recomputed=adjustment.charged + line.amount,
    )  # fmt: skip


def _with_lake_usage(inputs: Inputs, progress: Callable[[int], object]) -> Inputs:
    """Returns the inputs with hours and five-minute sums of the lake."""
    period, lake = inputs.period, open_lake(settings.LAKE_URL)
    step = POINT_DURATION if inputs.has_percentiles else HOUR
    sums_by_hour: CounterSums = defaultdict(lambda: defaultdict(int))
    sums_by_step: CounterSums = defaultdict(lambda: defaultdict(int))
    rows = replay.sums_by_step(lake, _instance_ids(inputs), period.start, period.end, step // MILLISECOND, progress)
    for instance_id, instant, direction, count in rows:
        sums_by_hour[instance_id, floor_hour(instant)][direction] += count
        sums_by_step[instance_id, instant][direction] += count
    hours: dict[str, list[HourUsage]] = defaultdict(list)
    for (instance_id, hour), counts in sorted(sums_by_hour.items()):
        hours[instance_id].append(hour_usage(hour, counts))
    usage = [replace(instance_usage, hours=hours[instance_usage.instance_id]) for instance_usage in inputs.usage]
    if inputs.has_percentiles:
        points = _points_of(sums_by_step)
        usage = [replace(instance_usage, rate_points=points[instance_usage.instance_id]) for instance_usage in usage]
    return replace(inputs, usage=usage)


def _points_of(counter_sums: CounterSums) -> dict[str, list[RatePoint]]:
    """Returns the points by instance, oldest first, without those that have no bytes."""
    result: dict[str, list[RatePoint]] = defaultdict(list)
    for (instance_id, point), counts in sorted(counter_sums.items()):
        bytes_in, bytes_out = counts.get(Direction.PRODUCE, 0), counts.get(Direction.CONSUME, 0)
        if bytes_in or bytes_out:
            result[instance_id].append(RatePoint(start=point, bytes_in=bytes_in, bytes_out=bytes_out))
    return result
