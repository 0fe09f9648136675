"""Invoices: issued once, without gaps, immutable; late usage is a line of the next one; credits and closing."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import connection, connections, transaction
from django.db.utils import DatabaseError
from django.test.utils import CaptureQueriesContext

from billing import services
from billing.invoices import adjustments, issuing
from billing.invoices.charging import draft
from billing.invoices.periods import month_before, month_of
from billing.invoices.recompute import recompute
from billing.invoices.snapshot import Inputs
from billing.ledger import posting
from billing.models import (
    ActionItem,
    BillingProfile,
    Discount,
    Invoice,
    InvoiceLine,
    InvoiceState,
    Plan,
    Price,
    PriceComponent,
    Seller,
    UsageHour,
    UsageOffset,
    UsageRevision,
)
from billing.rating.terms import Period
from brokers.models import Cluster, Placement
from instances.models import Operation
from tenants.actors import member_actor, system_actor
from tenants.errors import Conflict, Invalid, PermissionDenied
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("invoices")
MARCH = month_of(datetime(2026, 3, 15, tzinfo=UTC))
APRIL = month_of(datetime(2026, 4, 15, tzinfo=UTC))
NOW = datetime(2026, 4, 2, tzinfo=UTC)
MAY = datetime(2026, 5, 2, tzinfo=UTC)
GB = 10**9
HOURS_OF_MARCH = 744


@pytest.fixture(autouse=True)
def plans() -> None:
    services.ensure_default_plans()


@pytest.fixture()
def tenant() -> Tenant:
    """A tenant with one instance of the smallest plan, all of March and April."""
    owner = make_member()
    create_operations(make_instance(owner.tenant, name="orders"), datetime(2026, 2, 1, tzinfo=UTC))
    return owner.tenant


@pytest.fixture()
def priced_bytes() -> None:
    """A price of two cents for each incoming gigabyte since March."""
    brook = Plan.objects.get(code="brook")
    price = Price.objects.create(
        plan=brook, effective_from=MARCH.start, base_per_hour=Decimal("0.06"), per_mb_s_hour=Decimal("0.009"),
        per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=[[None, "0.02", "0"]])


def issued(tenant: Tenant, period: Period = MARCH, now: datetime = NOW) -> Invoice:
    invoice = issuing.issue(acting=SYSTEM, tenant=tenant, period=period, now=now)
    assert invoice is not None
    return invoice


def test_a_month_of_the_smallest_plan_is_744_hours_at_its_price(tenant: Tenant) -> None:
    invoice = issued(tenant)

    (line,) = invoice.lines.all()
    assert (line.meter, line.quantity, line.unit_price, line.amount) == (
        "instance",
        744,
        Decimal("0.06"),
        Decimal("44.64"),
    )
    assert (invoice.number, invoice.total, invoice.currency) == ("PS-2026-00001", Decimal("44.64"), "EUR")
    assert invoice.due_at == NOW + timedelta(days=14)
    assert AuditEntry.objects.filter(action="invoice.issued", tenant=tenant).count() == 1


def test_issuing_again_gives_the_one_there_is(tenant: Tenant) -> None:
    assert issued(tenant).pk == issued(tenant).pk
    assert Invoice.objects.count() == 1


def test_a_tenant_that_had_nothing_gets_no_invoice_and_no_number_is_lost(tenant: Tenant) -> None:
    assert issuing.issue(acting=SYSTEM, tenant=make_member().tenant, period=MARCH, now=NOW) is None
    assert issued(tenant).number.endswith("00001")


def test_a_period_that_is_not_over_is_not_issued(tenant: Tenant) -> None:
    with pytest.raises(Conflict) as refused:
        issued(tenant, APRIL, NOW)
    assert refused.value.code == "period_not_over"


def test_no_invoice_while_usage_of_a_cluster_is_not_read(tenant: Tenant, placed_cluster: str) -> None:
    Placement.objects.create(
        instance=tenant.instances.get(), cluster_id=placed_cluster, bandwidth_mb_s=5, storage_gb=20
    )
    for read_until in (None, MARCH.end - timedelta(hours=1)):
        if read_until is not None:
            UsageOffset.objects.create(cluster_id=placed_cluster, topic="__usage", partition=0, next_offset=1)
            UsageOffset.objects.update(updated_at=read_until)
        with pytest.raises(Conflict) as refused:
            issued(tenant)
        assert refused.value.code == "usage_incomplete"
    UsageOffset.objects.update(updated_at=MARCH.end + timedelta(minutes=1))
    assert issued(tenant).total == Decimal("44.64")


@pytest.fixture()
def placed_cluster() -> str:
    return str(Cluster.objects.create(name="one").pk)


def test_a_plan_without_a_price_stops_the_invoice_and_says_which(tenant: Tenant) -> None:
    Operation.objects.update(plan="ghost")
    with pytest.raises(Conflict, match="ghost has no price"):
        issued(tenant)
    assert not Invoice.objects.exists()


def test_tax_discount_and_what_was_agreed_are_in_it(tenant: Tenant) -> None:
    BillingProfile.objects.create(tenant=tenant, legal_name="Acme GmbH", tax_percent=Decimal(19))
    Discount.objects.create(tenant=tenant, code="TEN", percent=10)

    invoice = issued(tenant)

    assert [str(line.amount) for line in invoice.lines.all()] == ["44.64", "-4.46"]
    assert (invoice.subtotal, invoice.tax, invoice.total) == (Decimal("40.18"), Decimal("7.63"), Decimal("47.81"))
    assert invoice.buyer["name"] == "Acme GmbH"


def test_reverse_charge_is_said(tenant: Tenant) -> None:
    BillingProfile.objects.create(tenant=tenant, reverse_charge=True)
    assert "owes the tax" in issued(tenant).note


def test_an_invoice_that_was_issued_cannot_be_rewritten_by_anyone(tenant: Tenant) -> None:
    invoice = issued(tenant)
    for wrong in (
        lambda: Invoice.objects.filter(pk=invoice.pk).update(total=1, subtotal=1),
        lambda: InvoiceLine.objects.filter(invoice=invoice).update(amount=1),
        lambda: InvoiceLine.objects.filter(invoice=invoice).delete(),
        lambda: connection.cursor().execute("DELETE FROM billing_invoice"),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            wrong()
    issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.PAID, reference="bank 1", now=NOW)
    with pytest.raises(DatabaseError), transaction.atomic():
        Invoice.objects.filter(pk=invoice.pk).update(reference="another")


def test_late_usage_is_a_line_of_the_next_invoice_and_only_once(tenant: Tenant, priced_bytes: None) -> None:
    instance = tenant.instances.get()
    create_usage(instance.pk, MARCH.start + timedelta(hours=5), produce=100 * GB)
    march = issued(tenant)
    assert [str(line.amount) for line in march.lines.all()] == ["44.64", "2.00"]
    create_usage(instance.pk, MARCH.start + timedelta(hours=6), produce=50 * GB)

    found = recompute(march)
    april = issued(tenant, APRIL, MAY)

    assert [(each.source, each.meter, str(each.recomputed)) for each in found.differences] == [
        ("usage", "bytes_in", "3.00")
    ]
    late = april.lines.get(kind="adjustment")
    assert (late.corrects_id, late.meter, late.amount) == (march.pk, "bytes_in", Decimal("1.00"))
    assert april.total == Decimal("43.20") + Decimal("1.00")
    assert recompute(march).is_equal and recompute(april).is_equal
    assert march.total == Invoice.objects.get(pk=march.pk).total


def test_a_price_of_later_does_not_change_what_was_issued(tenant: Tenant) -> None:
    march = issued(tenant)
    Price.objects.create(plan_id="brook", effective_from=MARCH.start, base_per_hour=9, per_mb_s_hour=9, per_gb_hour=9)
    assert recompute(march).is_equal


def test_a_deleted_instance_is_charged_until_its_deletion(tenant: Tenant) -> None:
    gone = make_instance(tenant, name="gone")
    create_operations(gone, MARCH.start, MARCH.start + timedelta(hours=2, minutes=1))
    by_instance = {line.instance_id: line.quantity for line in issued(tenant).lines.all()}
    assert by_instance[gone.pk] == 3


def test_a_credit_note_has_its_own_number_and_never_exceeds_the_invoice(tenant: Tenant) -> None:
    BillingProfile.objects.create(tenant=tenant, tax_percent=Decimal(19))
    invoice = issued(tenant)

    made = issuing.credit(acting=SYSTEM, invoice=invoice, amount=Decimal("40.00"), note="Outage of 3 March", now=NOW)

    assert (made.number, made.subtotal, made.tax, made.total) == (
        "PSC-2026-00001", Decimal("-40.00"), Decimal("-7.60"), Decimal("-47.60"),
    )  # fmt: skip
    assert recompute(made).is_equal
    for amount, note in ((Decimal("4.65"), "more"), (Decimal(0), "x"), (Decimal("0.001"), "x"), (Decimal(1), " ")):
        with pytest.raises(Invalid):
            issuing.credit(acting=SYSTEM, invoice=invoice, amount=amount, note=note, now=NOW)


def test_an_invoice_is_closed_once_and_with_a_reference(tenant: Tenant) -> None:
    invoice = issued(tenant)
    assert invoice.shown_state(NOW) == "issued"
    assert invoice.shown_state(NOW + timedelta(days=15)) == "overdue"
    with pytest.raises(Invalid):
        issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.PAID, reference=" ", now=NOW)
    paid = issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.PAID, reference="bank 7", now=NOW)
    assert paid.shown_state(NOW + timedelta(days=99)) == "paid"
    with pytest.raises(Conflict):
        issuing.close(acting=SYSTEM, invoice=invoice, state=InvoiceState.WRITTEN_OFF, reference="x", now=NOW)


def test_a_member_of_a_tenant_issues_nothing(tenant: Tenant) -> None:
    with pytest.raises(PermissionDenied):
        issuing.issue(acting=member_actor(make_member()), tenant=tenant, period=MARCH, now=NOW)


def test_the_draft_says_what_is_due_so_far_and_what_the_month_will_be(tenant: Tenant, priced_bytes: None) -> None:
    create_usage(tenant.instances.get().pk, MARCH.start + timedelta(hours=1), produce=100 * GB)

    found = draft(tenant, MARCH.start + timedelta(hours=99, minutes=30))

    assert found.so_far.total == Decimal("6.00") + Decimal("2.00")
    assert found.forecast.total == Decimal("44.64") + Decimal("14.88")


def test_months_follow_each_other_over_the_turn_of_the_year() -> None:
    january = month_of(datetime(2026, 1, 5, 3, tzinfo=UTC))
    assert month_before(january) == month_of(datetime(2025, 12, 31, 23, tzinfo=UTC))
    assert month_before(january).end == january.start


@pytest.mark.django_db(transaction=True)
def test_numbers_have_no_gaps_when_many_issue_at_once_and_some_fail() -> None:
    services.ensure_default_plans()
    owners = [make_member() for _ in range(8)]
    for number, owner in enumerate(owners):
        create_operations(make_instance(owner.tenant, name=f"n{number}"), MARCH.start)
    Operation.objects.filter(tenant=owners[3].tenant).update(plan="ghost")

    def run(owner_number: int) -> None:
        try:
            for _ in range(2):  # doubled tasks
                issuing.issue(acting=SYSTEM, tenant=owners[owner_number].tenant, period=MARCH, now=NOW)
        except Conflict:
            pass
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    numbers = sorted(Invoice.objects.values_list("number", flat=True))
    assert numbers == [f"PS-2026-{number:05d}" for number in range(1, 8)]


def test_late_usage_of_any_age_is_charged_once_and_months_without_any_are_not_rated_again(
    tenant: Tenant, priced_bytes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = tenant.instances.get()
    months = [month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in range(3, 9)]
    march, *_others = [issued(tenant, month, month.end + timedelta(days=1)) for month in months]
    create_usage(instance.pk, MARCH.start + timedelta(hours=6), produce=50 * GB)
    september, october = (month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in (9, 10))
    rated: list[str] = []
    with_current_usage = adjustments.with_current_usage

    def counted(invoice: Invoice, inputs: Inputs) -> Inputs:
        rated.append(f"{invoice.period_start:%m}")
        return with_current_usage(invoice, inputs)

    monkeypatch.setattr(adjustments, "with_current_usage", counted)
    late = issued(tenant, september, september.end + timedelta(days=1)).lines.get(kind="adjustment")
    assert (late.corrects_id, late.meter, late.amount) == (march.pk, "bytes_in", Decimal("1.00"))
    assert rated == ["03"]
    rated.clear()
    assert not issued(tenant, october, october.end + timedelta(days=1)).lines.filter(kind="adjustment").exists()
    assert rated == []


@pytest.mark.parametrize(
    ("level", "count", "amount"),
    [("stored", 50 * GB, "1.00"), ("partitions", 50 * 3_600, "1.00"), ("connections", 50, "1.00")],
)
def test_late_levels_of_any_age_are_charged(tenant: Tenant, level: str, count: int, amount: str) -> None:
    price = Price.objects.create(
        plan=Plan.objects.get(code="brook"), effective_from=MARCH.start, base_per_hour=Decimal("0.06"),
        per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter=level, tiers=[[None, "0.02", "0"]])
    months = [month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in range(3, 10)]
    march, *_others = [issued(tenant, month, month.end + timedelta(days=1)) for month in months[:-1]]
    UsageHour.objects.create(
        instance_id=tenant.instances.get().pk, hour=MARCH.start + timedelta(hours=7), direction=level, bytes=count,
        requests=0,
    )  # fmt: skip

    late = issued(tenant, months[-1], months[-1].end + timedelta(days=1)).lines.get(kind="adjustment")

    assert (late.corrects_id, late.meter, late.amount) == (march.pk, level, Decimal(amount))


def test_hours_that_swap_their_levels_are_looked_at_again(tenant: Tenant) -> None:
    """Their sum is unchanged, and the included volume of each hour is not charged."""
    instance = tenant.instances.get()
    price = Price.objects.create(
        plan=Plan.objects.get(code="brook"), effective_from=MARCH.start, base_per_hour=Decimal("0.06"),
        per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="stored", tiers=[[None, "0.02", "0"]], included=Decimal(50))
    hours = [
        UsageHour(
            instance_id=instance.pk, hour=MARCH.start + timedelta(hours=n), direction="stored", bytes=60 * GB,
            requests=0,
        )
        for n in range(2)
    ]  # fmt: skip
    UsageHour.objects.bulk_create(hours)
    months = [month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in range(3, 9)]
    for month in months[:-1]:
        issued(tenant, month, month.end + timedelta(days=1))
    for hour, count in zip(hours, (100 * GB, 20 * GB), strict=True):
        UsageHour.objects.filter(pk=hour.pk).update(bytes=count)

    late = issued(tenant, months[-1], months[-1].end + timedelta(days=1)).lines.get(kind="adjustment")

    assert late.amount == Decimal("0.60")


def test_hours_of_the_month_that_runs_are_not_counted_as_late(tenant: Tenant) -> None:
    now = datetime.now(UTC)
    create_usage(tenant.instances.get().pk, now.replace(second=0, microsecond=0), produce=5)
    create_usage(tenant.instances.get().pk, MARCH.start, produce=5)
    assert list(UsageRevision.objects.values_list("month", flat=True)) == [MARCH.start]


@pytest.mark.parametrize("months", [2, 7])
def test_closing_a_month_asks_as_much_however_many_there_were(
    tenant: Tenant, months: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries, and invoices that are rated again, do not grow with the number of earlier months."""
    periods = [month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in range(3, 3 + months)]
    for month in periods[:-1]:
        issued(tenant, month, month.end + timedelta(days=1))
    monkeypatch.setattr(adjustments, "with_current_usage", None)
    with CaptureQueriesContext(connection) as asked:
        adjustments.late_usage(tenant)
    assert len(asked) == 4


def test_an_old_invoice_that_cannot_be_rated_again_is_an_action_item_and_stops_no_invoice(tenant: Tenant) -> None:
    march = issued(tenant)
    ghost = make_instance(tenant, name="ghost")
    create_operations(ghost, MARCH.start, MARCH.end - timedelta(days=1))
    Operation.objects.filter(instance=ghost).update(plan="ghost")

    assert issued(tenant, APRIL, MAY).total == Decimal("43.20")

    item = ActionItem.objects.get()
    assert (item.kind, item.detail, item.tenant) == ("late_usage", march.number, tenant)


def test_late_usage_that_makes_an_invoice_negative_is_credit_and_no_open_invoice(
    tenant: Tenant, priced_bytes: None
) -> None:
    """The second month has no charges, and the first one was charged too much."""
    instance = tenant.instances.get()
    create_usage(instance.pk, MARCH.start + timedelta(hours=5), produce=294_500 * 10**6)
    march = issued(tenant)
    UsageHour.objects.update(bytes=0)
    Operation.objects.filter(instance=instance).delete()
    create_operations(instance, datetime(2026, 2, 1, tzinfo=UTC), MARCH.end)

    april = issued(tenant, APRIL, MAY)

    assert (april.total, april.state) == (Decimal("-5.89"), "settled")
    assert posting.open_amount(march) == march.total - Decimal("5.89")
    assert posting.credit_balance(tenant, "EUR") == 0


def test_the_longest_prefix_of_numbers_is_good_for_invoices_and_credit_notes(tenant: Tenant) -> None:
    Seller.objects.create(number_prefix="PENSTOCK-INC")
    invoice = issued(tenant)
    note = issuing.credit(acting=SYSTEM, invoice=invoice, amount=Decimal(1), note="Outage", now=NOW)
    assert (invoice.number, note.number) == ("PENSTOCK-INC-2026-00001", "PENSTOCK-INCC-2026-00001")


def test_an_invoice_is_mailed_once_to_the_billing_address_or_to_who_verified_theirs(
    tenant: Tenant, django_capture_on_commit_callbacks: Any
) -> None:
    User.objects.filter(memberships__tenant=tenant).update(email_verified_at=NOW)
    with django_capture_on_commit_callbacks(execute=True):
        first, _again = issued(tenant), issued(tenant)
    (message,) = mail.outbox
    assert message.subject == f"[Penstock] Invoice {first.number}"
    assert "€ 44.64" in message.body and f"/invoices/{first.pk}/" in message.body and "2026-04-16" in message.body

    BillingProfile.objects.create(tenant=tenant, email="bills@acme.example")
    with django_capture_on_commit_callbacks(execute=True):
        issued(tenant, APRIL, MAY)
    assert mail.outbox[-1].to == ["bills@acme.example"] and len(mail.outbox) == 2
