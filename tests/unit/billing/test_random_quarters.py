"""Random quarters of a tenant through the pure core of billing: spans, rating, snapshots, taxes, notes and transfers.

`PENSTOCK_MONTHS=10000` says how many months are drawn. `tests/component/billing/test_random_months.py` takes the same
quarters through the database.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

from hypothesis import event, given, settings

from billing.invoices.snapshot import Inputs, from_json, to_json
from billing.ledger.decide import InvoiceBalance, transfers
from billing.metering.hourly import hour_usage
from billing.metering.spans import spans
from billing.rating.hours import HOUR
from billing.rating.spreading import SpreadBill
from billing.rating.taxes import split_credit, tax_sums
from billing.rating.terms import (
    Agreement,
    Bill,
    Component,
    Discount,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    RatedLine,
    RatePoint,
    Scheme,
    TaxChange,
    TaxSum,
    Tier,
)
from tenants.currencies import minor_unit, rounded
from tests.testkit.depth import number_from
from tests.testkit.quarters import (
    INCLUDED_GB,
    INCLUDED_MB_S,
    LONG_BEFORE,
    MINUTE,
    MONTHS,
    Quarter,
    changes_of,
    counted,
    month_start,
    quarters,
    rate_points,
)

ZERO = Decimal(0)
Key = tuple[str, str, str, Decimal]
Counters = dict[tuple[int, datetime], dict[str, int]]


def price_lists(quarter: Quarter) -> list[PriceList]:
    """Returns the drawn prices; of those of one plan and instant the first."""
    found: dict[tuple[str, datetime], PriceList] = {}
    for plan, since, (base, per_mb_s, per_gb), of in quarter.prices:
        at = max(LONG_BEFORE, quarter.start + since * MINUTE)
        booked = (
            (Meter.INSTANCE, Decimal(base) / 10**4, 0),
            (Meter.BANDWIDTH, Decimal(per_mb_s) / 10**4, INCLUDED_MB_S),
            (Meter.STORAGE, Decimal(per_gb) / 10**6, INCLUDED_GB),
        )
        components = [
            Component(
                meter=meter, scheme=Scheme.GRADUATED, tiers=[Tier(up_to=None, unit_price=price)],
                included=Decimal(included),
            )
            for meter, price, included in booked
        ]  # fmt: skip
        components += [
            Component(
                meter=Meter(fields["meter"]), scheme=Scheme(fields["scheme"]), included=Decimal(fields["included"]),
                commit=Decimal(fields["commit"]), overage_price=fields["overage_price"],
                tiers=[
                    Tier(up_to=None if up_to is None else Decimal(up_to), unit_price=Decimal(price), flat=Decimal(flat))
                    for up_to, price, flat in fields["tiers"]
                ],
            )
            for fields in of
        ]  # fmt: skip
        found.setdefault(
            (plan, at),
            PriceList(plan=plan, currency=quarter.currency, effective_from=at, components=components),
        )
    return list(found.values())


def agreement_of(quarter: Quarter, number: int) -> Agreement:
    """Returns the agreement of a month: coupons are redeemed in it or before."""
    months, unit = quarter.months, minor_unit(quarter.currency)
    discounts = [
        Discount(
            code=f"operator {place}", percent=Decimal(percent), amount=amount * unit,
            start=None if first < 0 else month_start(months, first), end=month_start(months, length),
        )
        for place, (percent, amount, first, length) in enumerate(quarter.discounts)
    ]  # fmt: skip
    discounts += [
        Discount(
            code=f"coupon {place}", percent=Decimal(percent), amount=amount * unit, start=months[at].start,
            end=month_start(months, min(MONTHS, at + length)),
        )
        for place, (at, percent, amount, length) in enumerate(quarter.coupons)
        if at <= number
    ]  # fmt: skip
    return Agreement(
        currency=quarter.currency, discounts=discounts, tax_percent=Decimal(quarter.tax_percent) / 100,
        minimum=quarter.minimum * unit if quarter.minimum_month <= number else ZERO,
        tax_changes=[
            TaxChange(effective_from=quarter.start + at * MINUTE, percent=Decimal(percent) / 100)
            for at, percent in quarter.tax_changes
        ],
    )  # fmt: skip


def usage_of(quarter: Quarter, month: Period, counters: Counters) -> list[InstanceUsage]:
    result = []
    for number, (steps, run) in enumerate(quarter.instances):
        of_instance = [
            span
            for span in spans([change for change in changes_of(quarter, steps) if change.requested_at < month.end])
            if span.start < month.end and (span.end is None or span.end > month.start)
        ]
        hours = [hour_usage(hour, of_hour) for (which, hour), of_hour in sorted(counters.items()) if which == number]
        points = [RatePoint(start=at, bytes_in=count, bytes_out=0) for at, count in rate_points(quarter, run)]
        if of_instance:
            result.append(
                InstanceUsage(
                    instance_id=f"ins-{number}", spans=of_instance,
                    hours=[hour for hour in hours if month.start <= hour.hour < month.end],
                    rate_points=[point for point in points if month.start <= point.start < month.end],
                )
            )  # fmt: skip
    return result


def by_key(lines: Sequence[RatedLine]) -> dict[Key, Decimal]:
    sums: dict[Key, Decimal] = defaultdict(Decimal)
    for line in lines:
        sums[line.instance_id, line.plan, line.meter, line.tax_percent] += line.amount
    return sums


@dataclass
class Document:
    """Issued invoice with the amounts that no note covers yet, by tax rate."""

    total: Decimal
    taxes: list[TaxSum]
    left: dict[Decimal, TaxSum] = field(default_factory=dict)
    open_amount: Decimal = ZERO
    is_open: bool = True


@dataclass
class MemoryLedger:
    """Ledger of a tenant in memory, moved by the transfers that billing decides."""

    currency: str
    documents: list[Document] = field(default_factory=list)
    credit: Decimal = ZERO
    owed: Decimal = ZERO

    def post(self, document: Document | None, amount: Decimal) -> None:
        self.owed += amount
        if document is None:
            self.credit -= amount
        else:
            document.open_amount += amount

    def apply(self) -> None:
        balances = [
            InvoiceBalance(invoice_id=str(place), open_amount=document.open_amount, is_open=document.is_open)
            for place, document in enumerate(self.documents)
        ]
        for transfer in transfers(self.credit, balances):
            self.documents[int(transfer.invoice_id)].open_amount -= transfer.amount
            self.credit -= transfer.amount
        for document in self.documents:
            document.is_open = document.is_open and document.open_amount != 0

    def issue(self, lines: Sequence[RatedLine]) -> Document:
        taxes = tax_sums(lines, self.currency)
        total = sum((line.amount for line in lines), ZERO) + sum((tax_sum.tax for tax_sum in taxes), ZERO)
        document = Document(total, taxes, {tax_sum.percent: tax_sum for tax_sum in taxes})
        self.documents.append(document)
        self.post(document, total)
        self.apply()
        return document

    def note(self, document: Document, amount: Decimal) -> None:
        """Issues a credit note and checks that it leaves no rate with more or less than it had."""
        for part in split_credit(amount, list(document.left.values()), self.currency):
            left = document.left[part.percent]
            document.left[part.percent] = replace(left, base=left.base - part.net, tax=left.tax - part.tax)
            self.post(document, -part.net - part.tax)
        for tax_sum in document.taxes:
            left = document.left[tax_sum.percent]
            assert min(ZERO, tax_sum.base) <= left.base <= max(ZERO, tax_sum.base)
            assert min(ZERO, tax_sum.tax) <= left.tax <= max(ZERO, tax_sum.tax)
        self.apply()

    def act(self, what: str, percent: int, which: int) -> bool:
        """Returns whether there was something to do."""
        unit, document = minor_unit(self.currency), self.documents[which % len(self.documents)]
        net = sum((tax_sum.base for tax_sum in document.left.values()), ZERO)
        amount = {
            "credit": rounded(net * percent / 100, self.currency), "credit the rest": net,
            "pay": max(unit, rounded(document.open_amount * percent / 100, self.currency)),
            "pay too much": document.open_amount + (percent + 1) * unit, "mark paid": document.open_amount,
            "refund": rounded(self.credit * percent / 100, self.currency),
        }.get(what, ZERO)  # fmt: skip
        if amount <= 0:
            return False
        if what.startswith("credit"):
            self.note(document, amount)
        elif what == "refund":
            self.post(None, amount)
        else:
            self.post(document, -amount)
        self.apply()
        return True

    def check(self) -> None:
        opened = [document.open_amount for document in self.documents]
        assert min(opened, default=ZERO) >= 0 and self.credit >= 0
        assert self.owed == sum(opened, ZERO) - self.credit
        assert not (self.credit and any(document.is_open for document in self.documents))
        assert all(document.is_open is (document.open_amount > 0) for document in self.documents)


def assert_bill_is_right(bill: Bill, inputs: Inputs, split: datetime) -> None:
    for line in bill.lines:
        assert line.amount == rounded(line.quantity * line.unit_price, bill.currency)
    assert bill.subtotal == sum((line.amount for line in bill.lines), ZERO) >= inputs.agreement.minimum
    assert bill.total == bill.subtotal + bill.tax
    assert bill.tax == sum((rounded(each.base * each.percent / 100, bill.currency) for each in bill.taxes), ZERO)
    assert from_json(json.loads(json.dumps(to_json(inputs)))).compute_bill() == bill
    spread = SpreadBill(bill, inputs.usage, inputs.prices)
    edges = (bill.period.start, split, split + HOUR, bill.period.end)
    parts = [spread.between(start, end) for start, end in pairwise(edges)]
    assert [sum(of_line, ZERO) for of_line in zip(*parts, strict=True)] == [line.amount for line in bill.lines]
    usage = [line for line in bill.lines if line.kind in ("usage", "minimum")]
    assert all(line.amount >= 0 for line in usage)


def corrections(charged: dict[Key, Decimal], due: dict[Key, Decimal], period: Period) -> Iterator[RatedLine]:
    """Yields a line for each amount that is due beyond what is charged, and charges it."""
    for key in sorted({*charged, *due}):
        amount = due.get(key, ZERO) - charged.get(key, ZERO)
        if amount:
            instance_id, plan, meter, percent = key
            charged[key] = charged.get(key, ZERO) + amount
            yield RatedLine(
                kind="adjustment", instance_id=instance_id, plan=plan, meter=meter, start=period.start, end=period.end,
                quantity=Decimal(1), unit="", unit_price=amount, amount=amount, tax_percent=percent,
            )  # fmt: skip


@settings(max_examples=max(1, number_from("PENSTOCK_MONTHS", 150, 10_000) // MONTHS), deadline=None)
@given(quarter=quarters())
def test_bills_notes_and_ledger_agree_to_the_cent_whatever_happens(quarter: Quarter) -> None:
    lists, ledger = price_lists(quarter), MemoryLedger(quarter.currency)
    counters: Counters = {}
    for place, hour, instance, direction, amount in quarter.usage:
        _use(quarter, counters, place, hour, instance, direction, amount)
    issued: list[tuple[Inputs, dict[Key, Decimal]]] = []
    for number, month in enumerate(quarter.months):
        inputs = Inputs(
            period=month, usage=usage_of(quarter, month, counters), prices=lists,
            agreement=agreement_of(quarter, number),
        )  # fmt: skip
        bill = inputs.compute_bill()
        assert_bill_is_right(bill, inputs, month.start + (len(quarter.usage) * 67 + 5) * HOUR)
        lines = list(bill.lines)
        for earlier, charged in issued:
            known = replace(earlier, usage=usage_of(quarter, earlier.period, counters))
            lines += corrections(charged, by_key(known.compute_bill().lines), earlier.period)
        event(f"corrections: {len(lines) > len(bill.lines)}")
        issued.append((inputs, by_key(bill.lines)))
        if lines:
            ledger.issue(lines)
        ledger.check()
        for what, percent, which in quarter.acts[number] if ledger.documents else ():
            event(f"{what}: {ledger.act(what, percent, which)}")
            ledger.check()
        for after, place, hour, instance, direction, amount in quarter.late:
            if after == number:
                _use(quarter, counters, place, hour, instance, direction, amount)
    for inputs, charged in issued:
        known = replace(inputs, usage=usage_of(quarter, inputs.period, counters))
        due = by_key(known.compute_bill().lines)
        assert {key: amount for key, amount in charged.items() if amount} == {
            key: amount for key, amount in due.items() if amount
        }


def _use(
    quarter: Quarter, counters: Counters, place: int, hour: int, instance: int, direction: str, amount: int
) -> None:
    at = quarter.months[place].start + hour * HOUR
    of_hour = counters.setdefault((instance % len(quarter.instances), at), {})
    of_hour[direction] = counted(direction, amount)
