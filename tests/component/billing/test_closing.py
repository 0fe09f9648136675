"""Closing a month, by the task and by `manage.py invoices`, and the operator's pages of invoices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from billing import action_items, services
from billing.invoices.closing import close_month, late_months_without_invoice
from billing.invoices.periods import month_before, month_of
from billing.models import (
    ActionItem,
    ActionKind,
    BillingProfile,
    Invoice,
    Plan,
    Price,
    PriceComponent,
    Seller,
    UsageRevision,
)
from billing.rating.terms import Period
from billing.services import FIRST_PRICE_DATE
from instances.models import Instance, Operation
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

GB = 10**9
NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))


@pytest.fixture(autouse=True)
def plans() -> None:
    services.ensure_default_plans()


def tenants(count: int) -> list[Tenant]:
    """Tenants with an instance each since the begin of last month."""
    result = []
    for _ in range(count):
        tenant = make_member().tenant
        create_operations(make_instance(tenant), LAST_MONTH.start)
        result.append(tenant)
    return result


def run(*words: str) -> str:
    out = StringIO()
    call_command("invoices", *words, stdout=out)
    return out.getvalue()


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


def test_every_tenant_that_had_something_gets_one_invoice_and_one_in_trouble_keeps_no_other_waiting() -> None:
    first, second, third = tenants(3)
    make_member()
    Operation.objects.filter(tenant=second).update(plan="ghost")

    done = close_month(NOW)
    again = close_month(NOW)

    assert (done.issued, list(done.waiting)) == (2, [second.slug])
    assert "ghost has no price" in done.waiting[second.slug]
    assert again.issued == 0
    assert {invoice.tenant_id for invoice in Invoice.objects.all()} == {first.pk, third.pk}


def test_closing_with_nothing_left_to_issue_looks_at_nobody(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    tenants(5)
    close_month(NOW)
    with django_assert_max_num_queries(3):
        close_month(NOW)


def test_an_agreed_minimum_is_charged_while_it_is_agreed_with_instances_or_without() -> None:
    def agreed(minimum: str, since: datetime | None, founded: datetime = LAST_MONTH.start) -> Tenant:
        tenant = make_member().tenant
        Tenant.objects.filter(pk=tenant.pk).update(created_at=founded)
        day = since.date() if since else None
        BillingProfile.objects.create(tenant=tenant, minimum=Decimal(minimum), minimum_from=day)
        return tenant

    always = agreed("100.00", None)
    since_then = agreed("50.00", LAST_MONTH.start)
    agreed("70.00", LAST_MONTH.end)
    agreed("70.00", None, LAST_MONTH.end)
    agreed("0.00", None)
    (later,) = tenants(1)
    BillingProfile.objects.create(tenant=later, minimum=Decimal(900), minimum_from=LAST_MONTH.end.date())

    assert close_month(NOW).issued == 3

    found = {invoice.tenant_id: invoice.total for invoice in Invoice.objects.all()}
    assert (found[always.pk], found[since_then.pk]) == (Decimal(100), Decimal(50)) and found[later.pk] < 100
    assert close_month(NOW).issued == 0


def price_by_volume() -> None:
    """A plan of which only gigabytes cost something."""
    Plan.objects.create(
        code="drop", name="Drop", bandwidth_mb_s=5, storage_gb=20, bandwidth_mb_s_max=5, storage_gb_max=20,
        partitions_max=10,
    )  # fmt: skip
    price = Price.objects.create(
        plan_id="drop", effective_from=FIRST_PRICE_DATE, base_per_hour=0, per_mb_s_hour=0, per_gb_hour=0
    )
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=[[None, "0.02", "0"]])


def months_ago(count: int) -> Period:
    month = month_of(NOW)
    for _ in range(count):
        month = month_before(month)
    return month


@pytest.mark.parametrize("is_invoiced", [True, False])
def test_late_usage_is_charged_to_a_tenant_whose_instances_are_long_gone(is_invoiced: bool) -> None:
    """Late usage is a line that corrects the invoice, or gets an invoice if the month had nothing to charge."""
    price_by_volume()
    tenant, month = make_member().tenant, months_ago(5)
    instance = make_instance(tenant, plan="drop")
    create_operations(instance, month.start, month.start + timedelta(days=9))
    Instance.objects.filter(pk=instance.pk).update(deleted_at=month.start + timedelta(days=9))
    used_at = month.start + timedelta(days=3)
    if is_invoiced:
        create_usage(instance.pk, used_at, produce=100 * GB)
    assert close_month(NOW, period=month).issued == int(is_invoiced)
    # As long ago as everything else that was written above.
    UsageRevision.objects.update(noted_at=month.end)
    assert close_month(NOW).issued == 0

    create_usage(instance.pk, used_at + timedelta(hours=5), produce=50 * GB)

    assert (close_month(NOW).issued, close_month(NOW).issued) == (1, 0)
    last = Invoice.objects.order_by("period_start").last()
    assert last is not None and last.subtotal == Decimal("1.00")
    (line,) = last.lines.all()
    period, kind = (LAST_MONTH, "adjustment") if is_invoiced else (month, "usage")
    assert (last.period_start, line.kind, line.meter) == (period.start, kind, "bytes_in")


def test_a_month_without_charges_is_not_looked_at_again_as_long_as_nothing_comes_in() -> None:
    price_by_volume()
    tenant, month = make_member().tenant, months_ago(3)
    instance = make_instance(tenant, plan="drop")
    create_operations(instance, month.start)
    create_usage(instance.pk, month.start, consume=GB)
    UsageRevision.objects.update(noted_at=month.end + timedelta(hours=1))
    assert late_months_without_invoice(LAST_MONTH) == []
    create_usage(instance.pk, month.start + timedelta(hours=1), consume=GB)
    assert late_months_without_invoice(LAST_MONTH) == [(tenant.pk, month.start)]


def test_a_fault_of_one_tenant_is_an_action_item_until_its_invoice_is_issued(panel: Client) -> None:
    _first, second = tenants(2)
    Operation.objects.filter(tenant=second).update(plan="ghost")
    close_month(NOW)
    close_month(NOW)
    item = ActionItem.objects.get()
    assert (item.tenant, item.kind) == (second, "closing") and "ghost has no price" in item.detail
    home = panel.get(reverse("admin:index")).content.decode()
    assert "ghost has no price" in home and reverse("admin:billing_actionitem_changelist") in home

    Operation.objects.filter(tenant=second).update(plan="brook")
    assert close_month(NOW).issued == 1 and not ActionItem.objects.exists()


def test_issuing_one_month_keeps_the_faults_of_other_months() -> None:
    (tenant,) = tenants(1)
    Operation.objects.filter(tenant=tenant).update(plan="ghost")
    close_month(NOW)
    close_month(NOW, period=months_ago(4))
    assert ActionItem.objects.get().tenant == tenant
    Operation.objects.filter(tenant=tenant).update(plan="brook")
    close_month(NOW)
    assert not ActionItem.objects.exists()


def test_an_operator_says_that_an_action_item_is_looked_after(panel: Client) -> None:
    (tenant,) = tenants(1)
    action_items.record(tenant, ActionKind.MAIL, "PS-1", NOW)
    chosen = {"action": "mark_handled", "_selected_action": [ActionItem.objects.get().pk]}
    panel.post(reverse("admin:billing_actionitem_changelist"), chosen, follow=True)
    assert not ActionItem.objects.exists()
    assert AuditEntry.objects.filter(tenant=tenant, action="action_item.handled").count() == 1


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        ("address", "\n".join("x" * 80), "At most 8 lines"),
        ("address", "a\n" * 8, "At most 8 lines"),
        ("address", "a\x07b", "cannot be printed"),
        ("address", "x" * 401, "at most 400"),
        ("name", "Acme\u2028GmbH", "cannot be printed"),
        ("name", "x" * 121, "at most 120"),
        ("number_prefix", "x" * 13, "at most 12"),
        ("number_prefix", "A/B", "valid"),
    ],
)
def test_seller_fields_too_long_for_an_invoice_are_refused_on_entry(field: str, value: str, refusal: str) -> None:
    good = Seller(name="Acme GmbH", address="\n".join("12345678"), number_prefix="PENSTOCK-INC")
    good.full_clean()
    setattr(good, field, value)
    with pytest.raises(ValidationError, match=refusal):
        good.full_clean()


def test_the_command_issues_closes_corrects_and_works_out_again() -> None:
    tenants(1)
    assert "1 issued, 0 with nothing to charge, 0 waiting" in run("issue", "--month", f"{LAST_MONTH.start:%Y-%m}")
    number = Invoice.objects.get().number

    assert "equal to the cent" in run("recompute", number)
    assert "PSC-" in run("credit", number, "--amount", "1.50", "--note", "Outage")
    assert run("close", number, "--reference", "bank 1").strip() == f"{number}: paid"

    for words, refusal in (
        (("close", number, "--reference", "x"), "closed already"),
        (("close", "PS-1", "--reference", "x"), "There is no invoice"),
        (("credit", number, "--amount", "NaN", "--note", "x"), "not an amount"),
        (("credit", number, "--amount", "many", "--note", "x"), "not an amount"),
        (("credit", number, "--amount", "99999", "--note", "x"), "what is left of the invoice"),
        (("issue", "--month", "2026-13"), "written 2026-11"),
    ):
        with pytest.raises(CommandError, match=refusal):
            run(*words)


def test_an_operator_closes_an_invoice_in_the_panel_and_it_is_in_the_audit_log(panel: Client) -> None:
    tenants(1)
    close_month(NOW)
    invoice = Invoice.objects.get()
    listed = reverse("admin:billing_invoice_changelist")
    assert invoice.number in panel.get(listed).content.decode()
    assert panel.get(reverse("admin:billing_invoice_change", args=[invoice.pk])).status_code == 200

    panel.post(listed, {"action": "mark_paid", "_selected_action": [invoice.pk]})

    invoice.refresh_from_db()
    assert (invoice.state, invoice.reference) == ("paid", "by ops@example.com")
    assert AuditEntry.objects.filter(action="invoice.paid", tenant=invoice.tenant).exists()


def test_an_operator_says_how_a_tenant_is_invoiced(panel: Client) -> None:
    (tenant,) = tenants(1)
    empty = dict.fromkeys(("address", "tax_id", "email"), "")
    form = {"tenant": tenant.pk, "legal_name": "Acme GmbH", "tax_percent": "19", "minimum": "0"}
    answer = panel.post(reverse("admin:billing_billingprofile_add"), form | empty)
    assert answer.status_code == 302, answer.content.decode()
    assert BillingProfile.objects.get().tax_percent == 19
    assert AuditEntry.objects.filter(action="billing_profile.changed", tenant=tenant).exists()


@pytest.mark.parametrize(
    ("tiers", "refusal"),
    [
        ("[]", "1 to 20 tiers"),
        ('[["1", "0.1", "0"]]', "without an end"),
        ('[[null, 0.1, "0"]]', "not a number in quotes"),
        ('[[null, "NaN", "0"]]', "below zero or without an end"),
        ('[["5", "1", "0"], ["5", "1", "0"], [null, "1", "0"]]', "ends before it begins"),
        ('{"a": 1}', "1 to 20 tiers"),
    ],
)
def test_a_component_that_makes_no_sense_is_refused_in_words(panel: Client, tiers: str, refusal: str) -> None:
    price = Price.objects.create(
        plan_id="brook",
        effective_from=datetime(2100, 1, 1, tzinfo=UTC),
        base_per_hour=1,
        per_mb_s_hour=1,
        per_gb_hour=1,
    )
    form = {"price": price.pk, "meter": "bytes_in", "scheme": "graduated", "included": "0", "commit": "0"}
    answer = panel.post(reverse("admin:billing_pricecomponent_add"), form | {"tiers": tiers})
    assert refusal in answer.content.decode()
    assert not PriceComponent.objects.exists()


def test_a_component_of_a_price_that_has_begun_is_refused(panel: Client) -> None:
    form = {"price": Price.objects.get(plan_id="brook").pk, "meter": "bytes_in", "scheme": "graduated", "included": "0"}
    answer = panel.post(
        reverse("admin:billing_pricecomponent_add"), form | {"commit": "0", "tiers": '[[null, "1", "0"]]'}
    )
    assert "Hours that have passed" in answer.content.decode()
    assert not PriceComponent.objects.exists()
