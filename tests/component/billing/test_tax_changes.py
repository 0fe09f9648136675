"""Changes of tax within a month, from panel and REST to invoice, notes, ledger and PDF."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pypdf import PdfReader

from billing import services
from billing.invoices import issuing, printing
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.ledger import posting
from billing.models import BillingProfile, Invoice, InvoiceLine, Plan, Price, PriceComponent, TaxChange
from billing.tax import TAX_CHANGES_MAX
from tenants.actors import system_actor
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("invoices")
MARCH, APRIL = (month_of(datetime(2026, month, 15, tzinfo=UTC)) for month in (3, 4))
# 240 hours at 19 %, 504 at 16 %.
CHANGE = MARCH.start + timedelta(hours=240)
GB = 10**9


@pytest.fixture(autouse=True)
def plans() -> None:
    """Plans with ten cents an hour, and one cent for each incoming gigabyte."""
    services.ensure_default_plans()
    price = Price.objects.create(
        plan=Plan.objects.get(code="brook"), effective_from=MARCH.start, base_per_hour=Decimal("0.10"),
        per_mb_s_hour=Decimal(0), per_gb_hour=Decimal(0),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=[[None, "0.01", "0"]])


@pytest.fixture()
def tenant() -> Tenant:
    """A tenant with 19 % until the eleventh of March, then 16 %, and one instance all the time."""
    owner = make_member()
    instance = make_instance(owner.tenant, name="orders")
    create_operations(instance, MARCH.start)
    BillingProfile.objects.create(tenant=owner.tenant, tax_percent=19)
    TaxChange.objects.create(tenant=owner.tenant, effective_from=CHANGE, percent=16)
    create_usage(instance.pk, CHANGE - timedelta(hours=5), produce=1_000 * GB)
    create_usage(instance.pk, CHANGE + timedelta(hours=5), produce=500 * GB)
    return owner.tenant


@pytest.fixture()
def operator() -> Api:
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


def issued(tenant: Tenant, period: Any = MARCH) -> Invoice:
    made = issuing.issue(acting=SYSTEM, tenant=tenant, period=period, now=period.end + timedelta(days=1))
    assert made is not None
    return made


def taxes(invoice: Invoice) -> list[tuple[str, str, str]]:
    return [(str(each.percent), str(each.base), str(each.tax)) for each in invoice.tax_sums()]


def test_an_invoice_taxes_each_line_by_its_time_and_comes_out_again(tenant: Tenant) -> None:
    march = issued(tenant)

    assert taxes(march) == [("19.00", "34.00", "6.46"), ("16.00", "55.40", "8.86")]
    assert (march.tax_percent, march.subtotal, march.tax, march.total) == (
        None, Decimal("89.40"), Decimal("15.32"), Decimal("104.72"),
    )  # fmt: skip
    assert posting.open_amount(march) == march.total
    assert recompute(march).is_equal
    owner = Api.of(tenant.members.get())
    read = owner.get(f"/invoices/{march.pk}").json()
    assert (read["tax_percent"], read["taxes"][0]) == (None, {"percent": "19.00", "base": "34.00", "tax": "6.46"})
    lines = owner.get(f"/invoices/{march.pk}/lines").json()["items"]
    assert [(each["meter"], each["amount"], each["tax_percent"]) for each in lines] == [
        ("instance", "24.00", "19.00"), ("instance", "50.40", "16.00"),
        ("bytes_in", "10.00", "19.00"), ("bytes_in", "5.00", "16.00"),
    ]  # fmt: skip
    text = " ".join(PdfReader(BytesIO(printing.as_pdf(march, "en"))).pages[0].extract_text().split())
    assert "Tax, 19.00 % of € 34.00" in text and "Tax, 16.00 % of € 55.40" in text


def test_a_tax_that_was_tampered_with_is_a_difference(tenant: Tenant) -> None:
    march = issued(tenant)
    march.taxes[0]["tax"] = "6.47"
    (found,) = recompute(march).differences
    assert (found.meter, found.invoiced, found.recomputed) == ("tax 19 %", Decimal("6.47"), Decimal("6.46"))


def test_late_usage_is_taxed_by_the_rate_it_was_used_at(tenant: Tenant) -> None:
    march = issued(tenant)
    create_usage(tenant.instances.get().pk, CHANGE - timedelta(hours=9), produce=100 * GB)
    april = issued(tenant, APRIL)
    assert taxes(april) == [("19.00", "1.00", "0.19"), ("16.00", "72.00", "11.52")]
    late = april.lines.get(kind="adjustment")
    assert (late.corrects_id, late.amount, late.tax_percent) == (march.pk, Decimal("1.00"), Decimal(19))
    assert recompute(april).is_equal and recompute(march).is_equal


def test_late_usage_of_an_invoice_of_before_has_the_rate_of_that_invoice(tenant: Tenant) -> None:
    """It was issued with one rate, and its lines and snapshot have none."""
    TaxChange.objects.all().delete()
    march = issued(tenant)
    inputs = march.inputs | {"version": 2}
    del inputs["agreement"]["tax_changes"]
    copy = Invoice.objects.get(pk=march.pk)
    lines = list(InvoiceLine.objects.filter(invoice=march))
    other = make_member().tenant
    copy.pk, copy.number, copy.tenant, copy.taxes, copy.inputs = None, "PS-OLD", other, [], inputs
    copy.save(force_insert=True)
    for line in lines:
        line.pk, line.invoice, line.tax_percent = None, copy, None
        line.save(force_insert=True)
    instance = tenant.instances.get()
    type(instance).objects.filter(pk=instance.pk).update(tenant=other)
    instance.operations.update(tenant=other)
    BillingProfile.objects.create(tenant=other, tax_percent=7)
    create_usage(instance.pk, MARCH.start, produce=100 * GB)

    april = issued(other, APRIL)

    assert taxes(april) == [("19.00", "1.00", "0.19"), ("7.00", "72.00", "5.04")]
    assert recompute(copy).is_equal


def test_credit_notes_credit_each_rate_and_sum_to_the_invoice(tenant: Tenant) -> None:
    march = issued(tenant)

    def credit(amount: str) -> Invoice:
        return issuing.credit(
            acting=SYSTEM, invoice=march, amount=Decimal(amount), note="Outage", now=APRIL.start + timedelta(days=3)
        )

    first, second, last = credit("10.01"), credit("30.00"), credit("49.39")

    assert taxes(first) == [("19.00", "-3.81", "-0.72"), ("16.00", "-6.20", "-0.99")]
    notes = (first, second, last)
    assert sum(each.total for each in notes) == -march.total
    for number, of in enumerate(march.tax_sums()):
        assert sum(each.tax_sums()[number].base for each in notes) == -of.base
        assert sum(each.tax_sums()[number].tax for each in notes) == -of.tax
    assert issuing.amounts_to_credit(march)[:2] == (0, 0)
    march.refresh_from_db()
    assert (march.state, posting.open_amount(march)) == ("settled", 0)


def test_an_operator_adds_lists_and_takes_back_changes_over_rest(operator: Api, tenant: Tenant) -> None:
    issued(tenant)
    path = f"/operator/tenants/{tenant.pk}/tax-changes"
    added = operator.post(path, {"effective_from": "2026-07-01T00:00:00Z", "percent": "21.5"})
    assert (added.status_code, added.json()["percent"]) == (201, "21.50"), added.content
    assert [each["percent"] for each in operator.get(path).json()["items"]] == ["16.00", "21.50"]
    assert Api.of(tenant.members.get()).get("/billing-details").json()["tax_percent"] == "21.50"
    assert operator.delete(f"{path}/{added.json()['id']}").status_code == 204
    invoiced = TaxChange.objects.get()
    assert_problem(operator.delete(f"{path}/{invoiced.pk}"), 409, "invoiced")
    actions = AuditEntry.objects.filter(tenant=tenant, action__startswith="tax_change")
    assert set(actions.values_list("action", flat=True)) == {"tax_change.added", "tax_change.removed"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"effective_from": "2026-03-31T23:00:00Z", "percent": "7"}, "invoiced"),
        ({"effective_from": "2026-05-01T00:00:00Z", "percent": "7"}, "exists"),
        ({"effective_from": "2026-06-01T00:00:00Z", "percent": "100.01"}, "max_value"),
        ({"effective_from": "2026-06-01T00:00:00Z", "percent": "-1"}, "min_value"),
        ({"effective_from": "2026-06-01T00:00:00Z", "percent": "NaN"}, "invalid"),
    ],
)
def test_changes_that_cannot_be_are_refused(operator: Api, tenant: Tenant, body: dict[str, str], code: str) -> None:
    issued(tenant)
    TaxChange.objects.create(tenant=tenant, effective_from=datetime(2026, 5, 1, tzinfo=UTC), percent=20)
    refused = operator.post(f"/operator/tenants/{tenant.pk}/tax-changes", body)
    assert refused.status_code == 400, refused.content
    assert code in refused.content.decode()
    assert TaxChange.objects.count() == 2


def test_a_change_by_a_number_that_no_change_has_is_not_found(operator: Api, tenant: Tenant) -> None:
    for number in ("0", "9" * 19, "9" * 30, "9" * 5_000, "x", "-1", "²"):
        assert_problem(operator.delete(f"/operator/tenants/{tenant.pk}/tax-changes/{number}"), 404, "not_found")


def test_changes_have_a_limit_and_reverse_charge_has_none_above_zero(operator: Api, tenant: Tenant) -> None:
    path = f"/operator/tenants/{tenant.pk}/tax-changes"
    BillingProfile.objects.filter(tenant=tenant).update(tax_percent=0, reverse_charge=True)
    assert "reverse_charge" in operator.post(path, {"effective_from": "2026-07-01T00:00:00Z", "percent": "7"}).text
    TaxChange.objects.bulk_create(
        TaxChange(tenant=tenant, effective_from=APRIL.end + timedelta(days=n), percent=0)
        for n in range(TAX_CHANGES_MAX - 1)
    )
    assert "too_many" in operator.post(path, {"effective_from": "2027-07-01T00:00:00Z", "percent": "0"}).text


def test_nobody_but_operators_reads_or_writes_changes(tenant: Tenant) -> None:
    owner = Api.of(tenant.members.get())
    path = f"/operator/tenants/{tenant.pk}/tax-changes"
    change = TaxChange.objects.get()
    for answer in (
        owner.get(path), owner.post(path, {"effective_from": "2026-07-01T00:00:00Z", "percent": "0"}),
        owner.delete(f"{path}/{change.pk}"),
    ):  # fmt: skip
        assert answer.status_code == 403
    assert TaxChange.objects.count() == 1


def test_the_panel_adds_and_takes_back_changes(client: Client, tenant: Tenant) -> None:
    issued(tenant)
    client.force_login(User.objects.create_superuser("op@example.com", "a long enough passphrase"))
    page = reverse("admin:billing_taxchange_add")
    body = {"tenant": tenant.pk, "effective_from_0": "2026-03-30", "effective_from_1": "00:00", "percent": "7"}
    assert "are invoiced, and keep their tax" in client.post(page, body).content.decode()
    assert client.post(page, body | {"effective_from_0": "2026-04-30"}).status_code == 302
    made = TaxChange.objects.get(percent=7)
    listed = reverse("admin:billing_taxchange_changelist")
    client.post(listed, {"action": "remove", "_selected_action": [made.pk]})
    assert not TaxChange.objects.filter(pk=made.pk).exists()
