"""Random quarters of a tenant through the real closing, ledger and recomputation.

A quarter draws plans, prices and their changes, sizes that change at any minute, usage that is early or late, taxes,
discounts, coupons, minimums, credit notes, payments, write-offs and refunds together, in currencies of none, two and
three decimals. `PENSTOCK_MONTHS` says how many months are drawn; a unit test draws more of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count

import pytest
from django.db import transaction
from hypothesis import event, given, settings

from billing import costs, coupons
from billing.invoices import issuing
from billing.invoices.charging import draft
from billing.invoices.closing import close_month
from billing.invoices.recompute import recompute
from billing.ledger import posting
from billing.ledger import services as ledger
from billing.models import (
    BillingProfile,
    Coupon,
    Discount,
    Invoice,
    InvoiceKind,
    InvoiceLine,
    InvoiceState,
    Plan,
    Price,
    PriceComponent,
    TaxChange,
    UsageHour,
    UsagePoint,
)
from billing.payments import services as payments
from billing.payments.reported import ReportedPayment
from billing.rating.terms import Period
from instances.choices import OperationState
from instances.models import Instance, Operation
from tenants.actors import member_actor, system_actor
from tenants.currencies import minor_unit, rounded
from tenants.errors import DomainError
from tenants.models import Member, Tenant
from tests.testkit.api_cases import make_member
from tests.testkit.billing import assert_ledger_is_right
from tests.testkit.depth import number_from
from tests.testkit.quarters import (
    HOUR,
    INCLUDED_GB,
    INCLUDED_MB_S,
    LONG_BEFORE,
    MINUTE,
    MONTHS,
    PLANS,
    Quarter,
    changes_of,
    counted,
    month_start,
    quarters,
    rate_points,
)

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("test")
SERIAL = count(1)


def write(quarter: Quarter) -> tuple[Member, list[Instance]]:
    """Writes what is known before the first month ends."""
    owner, months = make_member(), quarter.months
    tenant, unit = owner.tenant, minor_unit(quarter.currency)
    tenant.currency = quarter.currency
    Tenant.objects.filter(pk=tenant.pk).update(currency=quarter.currency, created_at=LONG_BEFORE)
    for code in PLANS:
        Plan.objects.get_or_create(
            code=code,
            defaults={
                "name": code, "bandwidth_mb_s": INCLUDED_MB_S, "storage_gb": INCLUDED_GB,
                "bandwidth_mb_s_max": 50, "storage_gb_max": 300,
                "partitions_max": 50,
            },
        )  # fmt: skip
    for plan, since, (base, per_mb_s, per_gb), of in quarter.prices:
        price, _ = Price.objects.get_or_create(
            plan_id=plan, currency=quarter.currency, effective_from=max(LONG_BEFORE, quarter.start + since * MINUTE),
            defaults={
                "base_per_hour": Decimal(base) / 10**4, "per_mb_s_hour": Decimal(per_mb_s) / 10**4,
                "per_gb_hour": Decimal(per_gb) / 10**6,
            },
        )  # fmt: skip
        if not price.components.exists():
            PriceComponent.objects.bulk_create(PriceComponent(price=price, **fields) for fields in of)
    BillingProfile.objects.create(
        tenant=tenant, tax_percent=Decimal(quarter.tax_percent) / 100, reverse_charge=quarter.is_reverse_charge,
        minimum=quarter.minimum * unit,
        minimum_from=None if quarter.minimum_month < 0 else month_start(months, quarter.minimum_month).date(),
    )  # fmt: skip
    TaxChange.objects.bulk_create(
        TaxChange(tenant=tenant, effective_from=quarter.start + at * MINUTE, percent=Decimal(percent) / 100)
        for at, percent in quarter.tax_changes
    )
    Discount.objects.bulk_create(
        Discount(
            tenant=tenant, code=f"OPERATOR-{number}", percent=percent, amount=amount * unit,
            starts_at=None if first < 0 else month_start(months, first), ends_at=month_start(months, length),
        )
        for number, (percent, amount, first, length) in enumerate(quarter.discounts)
    )  # fmt: skip
    instances = [_write_instance(tenant, quarter, *drawn) for drawn in quarter.instances]
    for month, hour, instance, direction, amount in quarter.usage:
        use(instances, months[month].start + hour * HOUR, instance, direction, amount)
    return owner, instances


def _write_instance(
    tenant: Tenant, quarter: Quarter, drawn: Sequence[tuple[int, str, str, int, int]], run: tuple[int, int, int]
) -> Instance:
    instance = Instance.objects.create(
        tenant=tenant, name=f"instance-{next(SERIAL)}", plan=PLANS[0], bandwidth_mb_s=INCLUDED_MB_S,
        storage_gb=INCLUDED_GB, partitions_max=50,
    )  # fmt: skip
    Instance.objects.filter(pk=instance.pk).update(created_at=LONG_BEFORE)
    Operation.objects.bulk_create(
        Operation(
            tenant=tenant, instance=instance, type=change.type, generation=number, plan=change.plan,
            state=OperationState.FAILED if change.done_at is None else OperationState.SUCCEEDED,
            bandwidth_mb_s=change.bandwidth_mb_s, storage_gb=change.storage_gb, is_suspended=change.is_suspended,
            asked_by="test", created_at=change.requested_at, finished_at=change.done_at or change.requested_at + MINUTE,
        )
        for number, change in enumerate(changes_of(quarter, drawn), start=1)
    )  # fmt: skip
    UsagePoint.objects.bulk_create(
        UsagePoint(instance_id=instance.pk, point=at, direction="produce", bytes=count_)
        for at, count_ in rate_points(quarter, run)
    )
    return instance


def use(instances: Sequence[Instance], hour: datetime, instance: int, direction: str, amount: int) -> None:
    """Sets the usage of an hour."""
    UsageHour.objects.update_or_create(
        instance_id=instances[instance % len(instances)].pk, hour=hour, direction=direction,
        defaults={"bytes": counted(direction, amount), "requests": 1},
    )  # fmt: skip


def act(tenant: Tenant, invoices: Sequence[Invoice], what: str, percent: int, which: int, now: datetime) -> None:
    """Does what an operator or a payment provider does. Raises `DomainError` where it is refused."""
    currency = tenant.currency
    unit = minor_unit(currency)
    if what == "refund":
        amount = rounded(posting.credit_balance(tenant, currency) * percent / 100, currency)
        reference = f"refund {next(SERIAL)}"
        ledger.refund(acting=SYSTEM, tenant=tenant, currency=currency, amount=amount, reference=reference, now=now)
        return
    invoice = Invoice.objects.get(pk=invoices[which % len(invoices)].pk)
    left, open_amount = issuing.amounts_to_credit(invoice).net, posting.open_amount(invoice)
    match what:
        case "credit" | "credit the rest":
            amount = left if what == "credit the rest" else rounded(left * percent / 100, currency)
            issuing.credit(acting=SYSTEM, invoice=invoice, amount=amount, note="Outage", now=now)
        case "pay" | "pay too much":
            amount = max(unit, rounded(open_amount * percent / 100, currency))
            if what == "pay too much":
                amount = open_amount + (percent + 1) * unit
            payment_id = f"payment {next(SERIAL)}"
            reported = ReportedPayment(
                payment_id=payment_id, invoice_number=invoice.number, amount=amount, currency=currency
            )
            payments.receive(reported, now)
            payments.receive(reported, now)
        case "mark paid":
            issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.PAID, reference="bank", now=now)
        case "write off":
            issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.WRITTEN_OFF, reference="gone", now=now)


def assert_invoice_is_right(invoice: Invoice) -> None:
    """Lines are quantity times price as printed, and sum to subtotal, taxes and total."""
    bases: dict[Decimal, Decimal] = defaultdict(Decimal)
    for line in invoice.lines.all():
        assert line.tax_percent is not None
        assert line.amount == rounded(line.quantity * line.unit_price, invoice.currency)
        bases[line.tax_percent] += line.amount
    assert sum(bases.values(), Decimal(0)) == invoice.subtotal
    assert {each.percent: each.base for each in invoice.tax_sums()} == bases
    assert all(each.tax == rounded(each.base * each.percent / 100, invoice.currency) for each in invoice.tax_sums())
    assert sum(each.tax for each in invoice.tax_sums()) == invoice.tax
    assert invoice.total == invoice.subtotal + invoice.tax
    assert 0 <= invoice.from_balance <= max(invoice.total, Decimal(0))


def charged_for(tenant: Tenant, month: Period) -> Decimal:
    """Returns the amount that all invoices charge for a month: its own lines, and later corrections of them."""
    lines = InvoiceLine.objects.filter(invoice__tenant=tenant, invoice__kind=InvoiceKind.INVOICE)
    own = lines.filter(invoice__period_start=month.start).exclude(kind="adjustment")
    later = lines.filter(corrects__period_start=month.start, kind="adjustment")
    return sum((line.amount for line in [*own, *later]), Decimal(0))


def assert_costs_are_charged(tenant: Tenant, month: Period, split: datetime) -> None:
    """Costs by instance, by day and of the parts of any split are what is charged for the month."""
    now = month.end + HOUR
    charged = charged_for(tenant, month)
    for group_by in ("instance", "day", "topic"):
        assert sum(row.amount for row in costs.costs(tenant, month.start, month.end, group_by, now).rows) == charged
    parts = [costs.costs(tenant, *edges, "instance", now).total for edges in ((month.start, split), (split, month.end))]
    assert sum(parts) == charged


def live(quarter: Quarter) -> None:
    """Closes the months one after the other, with what happens between them."""
    owner, instances = write(quarter)
    tenant = owner.tenant
    for number, month in enumerate(quarter.months):
        for which, (at, percent, amount, length) in enumerate(quarter.coupons):
            if at == number:
                code = f"COUPON-{which}-{next(SERIAL)}"
                Coupon.objects.create(
                    code=code, percent=percent, amount=amount * minor_unit(quarter.currency), months=length,
                    currency=quarter.currency,
                )  # fmt: skip
                coupons.redeem(acting=member_actor(owner), code=code, now=month.end - HOUR)
        expected = draft(tenant, month.end - MINUTE).forecast
        now = month.end + timedelta(days=1)
        assert close_month(now).waiting == {}
        invoice = Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE, period_start=month.start).first()
        own = invoice.lines.exclude(kind="adjustment") if invoice is not None else []
        assert [(line.meter, line.amount) for line in own] == [(line.meter, line.amount) for line in expected.lines]
        invoices = list(Invoice.objects.filter(tenant=tenant, kind=InvoiceKind.INVOICE).order_by("period_start"))
        for issued in invoices:
            assert_invoice_is_right(issued)
            assert recompute(issued).differences == []
        assert_ledger_is_right(tenant, quarter.currency)
        split = month.start + (number * 331 + len(quarter.usage) * 67) * HOUR + 17 * MINUTE
        assert_costs_are_charged(tenant, month, min(split, month.end))
        for what, percent, which in quarter.acts[number] if invoices else ():
            try:
                with transaction.atomic():
                    act(tenant, invoices, what, percent, which, now)
                event(what)
            except DomainError:
                event(f"{what}: refused")
            assert_ledger_is_right(tenant, quarter.currency)
        for after, place, hour, instance, direction, amount in quarter.late:
            if after == number:
                use(instances, quarter.months[place].start + hour * HOUR, instance, direction, amount)
    for month in quarter.months:
        assert costs.costs(tenant, month.start, month.end, "day", month.end).total == charged_for(tenant, month)
    event(f"corrections: {InvoiceLine.objects.filter(invoice__tenant=tenant, kind='adjustment').exists()}")


class _Undone(Exception):
    """Ends the transaction of an example."""


@settings(max_examples=max(1, number_from("PENSTOCK_MONTHS", 60, 10_000) // MONTHS), deadline=None)
@given(quarter=quarters())
def test_lines_notes_ledger_costs_and_recomputation_agree_to_the_cent_whatever_happens(quarter: Quarter) -> None:
    with pytest.raises(_Undone), transaction.atomic():
        live(quarter)
        raise _Undone
