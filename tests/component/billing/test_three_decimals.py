"""Currencies with three decimals, from prices to invoices, credit notes, payments, refunds and files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase
from pypdf import PdfReader

from billing import services
from billing.invoices import issuing, printing
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.ledger import posting
from billing.ledger.services import refund
from billing.models import BillingProfile, Discount, Invoice, Plan, Price, PriceComponent
from tenants.actors import system_actor
from tenants.errors import Invalid
from tenants.models import Tenant, User
from tests.testkit import depth
from tests.testkit.api_cases import Api, make_member
from tests.testkit.billing import create_operations, create_usage, invoice_of
from tests.testkit.instances import make_instance
from tests.testkit.payment_provider import SECRET, send_report

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("invoices")
MARCH, APRIL = (month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in (3, 4))
MAY = datetime(2026, 5, 2, tzinfo=UTC)
GB = 10**9


@pytest.fixture(autouse=True)
def provider(settings: Any) -> None:
    settings.PAYMENTS_SECRETS = (SECRET,)


@pytest.fixture()
def operator() -> Api:
    services.ensure_default_plans()
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


@pytest.fixture()
def tenant(operator: Api) -> Tenant:
    """A tenant that pays in Kuwaiti dinars: 0.003 an hour, 0.0155 a gigabyte, and 5 % tax."""
    price = {
        "currency": "KWD", "effective_from": "2026-01-01T00:00:00Z", "base_per_hour": "0.003", "per_mb_s_hour": "0",
        "per_gb_hour": "0", "components": [{"meter": "bytes_in", "tiers": [[None, "0.0155", "0"]]}],
    }  # fmt: skip
    # Metered prices are entered before they begin.
    with time_machine.travel(datetime(2025, 12, 1, tzinfo=UTC)):
        added = operator.post("/operator/plans/brook/prices", price)
    assert added.status_code == 201, added.content
    tenant = make_member().tenant
    set_ = operator.put(f"/operator/tenants/{tenant.pk}/currency", {"currency": "KWD"})
    assert set_.status_code == 200, set_.content
    BillingProfile.objects.create(tenant=tenant, tax_percent=5)
    instance = make_instance(tenant, name="orders")
    create_operations(instance, MARCH.start)
    create_usage(instance.pk, MARCH.start, produce=7 * GB)
    return Tenant.objects.get(pk=tenant.pk)


def issued(tenant: Tenant, period: Any = MARCH) -> Invoice:
    made = issuing.issue(acting=SYSTEM, tenant=tenant, period=period, now=period.end + timedelta(days=1))
    assert made is not None
    return made


def test_an_invoice_in_dinars_has_thousandths_everywhere(tenant: Tenant) -> None:
    """744 h × 0.003 = 2.232, 7 GB × 0.0155 = 0.1085, rounded to 0.109; 5 % of 2.341 are 0.117."""
    march = issued(tenant)
    march = Invoice.objects.get(pk=march.pk)

    assert [str(each.amount) for each in march.lines.all()] == ["2.232", "0.109"]
    assert (str(march.subtotal), str(march.tax), str(march.total)) == ("2.341", "0.117", "2.458")
    assert posting.open_amount(march) == Decimal("2.458")
    assert recompute(march).is_equal
    owner = tenant.members.get()
    api = Api.of(owner)
    read = api.get(f"/invoices/{march.pk}").json()
    assert (read["total"], read["open_amount"], read["taxes"][0]["tax"]) == ("2.458", "2.458", "0.117")
    assert api.get(f"/invoices/{march.pk}/lines").json()["items"][1]["amount"] == "0.109"
    assert api.get("/ledger/balances").json()["items"][0]["balance"] == "2.458"
    start, end = "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"
    assert api.get(f"/costs?start={start}&end={end}&group_by=day").json()["total"] == "2.341"
    text = " ".join(PdfReader(BytesIO(printing.as_pdf(march, "en"))).pages[0].extract_text().split())
    assert "KWD 2.458" in text and "KWD 2.232" in text
    console = Client()
    console.force_login(owner.user)
    assert "KWD 2.458" in console.get(f"/invoices/{march.pk}/").content.decode()
    file = b"".join(console.get(reverse("page-invoice-csv", args=[march.pk])).streaming_content).decode()
    assert ",0.109,KWD," in file
    excel = console.get(reverse("page-invoice-csv", args=[march.pk]) + "?for=excel")
    assert ";0,109;KWD;" in b"".join(excel.streaming_content).decode()
    ledger = b"".join(console.get(reverse("page-ledger-csv")).streaming_content).decode()
    assert ",2.458,2.458,KWD" in ledger


def test_it_is_credited_paid_and_paid_back_by_thousandths(tenant: Tenant) -> None:
    march = issued(tenant)
    note = issuing.credit(acting=SYSTEM, invoice=march, amount=Decimal("0.001"), note="Outage", now=MAY)
    assert (note.subtotal, note.tax) == (Decimal("-0.001"), 0)
    assert send_report("pay-1", march.number, "2.459", "KWD").status_code == 200
    march.refresh_from_db()
    assert (march.state, posting.credit_balance(tenant, "KWD")) == ("paid", Decimal("0.002"))
    with pytest.raises(Invalid):
        refund(acting=SYSTEM, tenant=tenant, currency="KWD", amount=Decimal("0.0005"), reference="r", now=MAY)
    refund(acting=SYSTEM, tenant=tenant, currency="KWD", amount=Decimal("0.001"), reference="r", now=MAY)
    assert posting.balance(tenant, "KWD") == Decimal("-0.001")


@pytest.mark.parametrize(
    ("amount", "currency", "status"),
    [("1.005", "KWD", 200), ("1.0005", "KWD", 400), ("1.005", "EUR", 400), ("1.5", "JPY", 400), ("1.00", "JPY", 200)],
)
def test_a_payment_has_the_decimals_of_its_currency(tenant: Tenant, amount: str, currency: str, status: int) -> None:
    assert send_report("pay-1", issued(tenant).number, amount, currency).status_code == status


def test_amounts_finer_than_the_currency_are_refused_where_they_are_entered(operator: Api, tenant: Tenant) -> None:
    euros = make_member()
    for api, amount, status in (
        (Api.of(tenant.members.get()), "1.005", 201), (Api.of(tenant.members.get()), "1.0005", 400),
        (Api.of(euros), "1.005", 400), (Api.of(euros), "1.05", 201),
    ):  # fmt: skip
        made = api.post("/budgets", {"name": f"b {amount}", "amount": amount})
        assert made.status_code == status, made.content
    panel = Client()
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    body = {"tenant": euros.tenant_id, "code": "X", "percent": "0", "amount": "1.005"}
    page = panel.post(reverse("admin:billing_discount_add"), body).content.decode()
    assert "Amounts in EUR have at most 2 decimals." in page
    panel.post(reverse("admin:billing_discount_add"), body | {"tenant": tenant.pk})
    assert Discount.objects.get().amount == Decimal("1.005")


def test_amounts_in_other_currencies_are_written_as_before(tenant: Tenant) -> None:
    other = make_member()
    made = Invoice.objects.get(pk=invoice_of(other.tenant, total="10.00").pk)
    assert str(made.total) == "10.00"
    assert Api.of(other).get(f"/invoices/{made.pk}").json()["total"] == "10.00"
    assert Api.of(other).get("/ledger").json()["items"][0]["balance"] == "10.00"


class AnyCurrency(TestCase):
    """Months of random use, credited and paid at random: sums are exact to the smallest amount."""

    @settings(max_examples=depth.examples(40), deadline=None)
    @given(
        currency=st.sampled_from(("EUR", "JPY", "KWD", "BHD", "KRW")), unit_price=st.integers(1, 10**6),
        gigabytes=st.integers(0, 10**4), tax=st.integers(0, 2_500), shares=st.lists(st.integers(1, 99), max_size=3),
        paid=st.integers(0, 200),
    )  # fmt: skip
    def test_lines_notes_and_the_ledger_sum(
        self, currency: str, unit_price: int, gigabytes: int, tax: int, shares: list[int], paid: int
    ) -> None:
        services.ensure_default_plans()
        price = Price.objects.create(
            plan=Plan.objects.get(code="brook"), currency=currency, effective_from=MARCH.start,
            base_per_hour=Decimal(unit_price) / 10**4, per_mb_s_hour=0, per_gb_hour=0,
        )  # fmt: skip
        PriceComponent.objects.create(
            price=price, meter="bytes_in", tiers=[[None, str(Decimal(unit_price) / 10**6), "0"]]
        )
        tenant = make_member().tenant
        Tenant.objects.filter(pk=tenant.pk).update(currency=currency)
        tenant.refresh_from_db()
        BillingProfile.objects.create(tenant=tenant, tax_percent=Decimal(tax) / 100)
        instance = make_instance(tenant, name="orders")
        create_operations(instance, MARCH.start + timedelta(hours=gigabytes % 700))
        create_usage(instance.pk, MARCH.end - timedelta(hours=1), produce=gigabytes * GB // 7)
        march = Invoice.objects.get(pk=issued(tenant).pk)
        smallest = {"EUR": Decimal("0.01"), "JPY": Decimal(1), "KRW": Decimal(1)}.get(currency, Decimal("0.001"))
        assert march.subtotal == sum(each.amount for each in march.lines.all())
        assert all(each.amount % smallest == 0 for each in march.lines.all())
        assert march.tax % smallest == 0 and abs(march.tax - march.subtotal * tax / 10_000) <= smallest / 2
        assert recompute(march).is_equal
        notes = []
        for share in shares:
            left = issuing.amounts_to_credit(march)
            amount = max(smallest, left.net * share // 100 // smallest * smallest)
            if amount <= left.net:
                notes.append(issuing.credit(acting=SYSTEM, invoice=march, amount=amount, note="x", now=MAY))
        left = issuing.amounts_to_credit(march)
        if left.net > 0:
            notes.append(issuing.credit(acting=SYSTEM, invoice=march, amount=left.net, note="x", now=MAY))
        assert sum(each.total for each in notes) == -march.total
        amount = march.total * paid // 100 // smallest * smallest
        if amount > 0:
            assert send_report("p", march.number, str(amount), currency).status_code == 200
        assert posting.balance(tenant, currency) == -amount
        assert posting.credit_balance(tenant, currency) == amount
