"""Billing details set by the tenant, payment of an invoice, and pages of instances without a price."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from pypdf import PdfReader

from billing import details, services
from billing.invoices import issuing, printing
from billing.invoices.periods import month_before, month_of
from billing.models import BillingProfile, Invoice, Plan, Price, Seller
from config.environment import https_template
from instances.models import Operation
from tenants.actors import system_actor
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.billing import create_operations
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))
SYSTEM = system_actor("test")
IBAN = "DE89 3704 0044 0532 0130 00"
DETAILS = {
    "legal_name": "Acme GmbH", "address": "Weg 1\n10115 Berlin", "tax_id": "DE123456789", "country": "DE",
    "emails": ["bills@acme.example", "cfo@acme.example"], "purchase_order": "PO-4711",
}  # fmt: skip


@pytest.fixture(autouse=True)
def plans() -> None:
    services.ensure_default_plans()


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def console(owner: Member) -> Client:
    client = Client()
    client.force_login(owner.user)
    return client


def invoice_of(owner: Member) -> Invoice:
    """Returns last month's invoice of one instance."""
    create_operations(make_instance(owner.tenant), LAST_MONTH.start)
    invoice = issuing.issue(acting=SYSTEM, tenant=owner.tenant, period=LAST_MONTH, now=NOW)
    assert invoice is not None
    return invoice


def pdf_text(invoice: Invoice) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(printing.as_pdf(invoice, "en"))).pages)


class TestEndpointsOfBillingDetails(EndpointCases):
    cases = (
        Case("GET", "/billing-details", Scope.BILLING_READ),
        Case("PATCH", "/billing-details", Scope.BILLING_WRITE, body=DETAILS),
    )

    def places(self, owner: Member) -> dict[str, str]:
        return {}


def test_details_stand_on_the_next_invoice_and_its_mails_and_not_on_what_was_issued(
    owner: Member, django_capture_on_commit_callbacks: Any
) -> None:
    caller = Api.of(owner)
    BillingProfile.objects.create(tenant=owner.tenant, tax_percent=19)
    assert caller.get("/billing-details").json()["legal_name"] == ""
    changed = caller.patch("/billing-details", DETAILS).json()
    assert changed == DETAILS | {"tax_percent": "19.00", "reverse_charge": False}
    with django_capture_on_commit_callbacks(execute=True):
        invoice = invoice_of(owner)

    assert [message.to for message in mail.outbox] == [["bills@acme.example"], ["cfo@acme.example"]]
    text = pdf_text(invoice)
    assert all(each in text for each in ("Acme GmbH", "10115 Berlin", "DE123456789", "PO-4711"))
    caller.patch("/billing-details", {"purchase_order": "PO-1", "emails": []})
    assert Invoice.objects.get(pk=invoice.pk).buyer["purchase_order"] == "PO-4711"
    assert caller.get("/billing-details").json() == changed | {"purchase_order": "PO-1", "emails": []}
    assert AuditEntry.objects.filter(tenant=owner.tenant, action="billing_profile.changed").count() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "\n".join("x" * 80)}, {"address": "x" * 401}, {"legal_name": "Acme\nGmbH"},
        {"legal_name": "x" * 121}, {"tax_id": "\u0007"}, {"emails": ["nobody"]}, {"emails": ["a@b.example"] * 6},
        {"emails": "a@b.example"}, {"purchase_order": "x" * 61}, {"tax_percent": "0"}, {"minimum": "0"},
        {"legal_name": None}, {"address": "x" * 200_000}, {},
    ],
)  # fmt: skip
def test_details_that_no_invoice_could_show_are_refused_and_change_nothing(
    owner: Member, wrong: dict[str, Any]
) -> None:
    assert_problem(Api.of(owner).patch("/billing-details", ({"tax_id": "DE1"} | wrong) if wrong else {}), 400)
    assert not BillingProfile.objects.exists()


def test_the_longest_details_fit_on_an_invoice(owner: Member) -> None:
    longest = {
        "legal_name": "W" * 120, "address": "\n".join(["W" * 49] * 8)[:400], "tax_id": "W" * 32,
        "emails": [f"{'w' * 60}{n}@{'w' * 60}.{'w' * 60}.{'w' * 50}.example" for n in range(5)],
        "purchase_order": "W" * 60,
    }  # fmt: skip
    assert Api.of(owner).patch("/billing-details", longest).status_code == 200
    Seller.objects.create(
        name="W" * 120, address="\n".join(["W" * 49] * 8), bank_name="W" * 80, bank_account="9" * 42,
        bank_code="W" * 11,
    )  # fmt: skip
    assert "Payment reference" in pdf_text(invoice_of(owner))


def test_an_address_of_eighty_lines_that_was_issued_is_printed_all_the_same(owner: Member) -> None:
    BillingProfile.objects.create(tenant=owner.tenant, address="\n".join(str(n) for n in range(80)))
    text = pdf_text(invoice_of(owner))
    assert "78, 79" in text.replace("\n", " ")


def test_the_page_of_details_saves_for_owners_and_shows_for_those_who_only_read(owner: Member, console: Client) -> None:
    at = reverse("page-billing-details")
    form = {"legal_name": "Acme GmbH", "address": "Weg 1\r\n10115 Berlin", "email": "a@b.example, c@d.example"}
    assert console.post(at, form).status_code == 302
    profile = BillingProfile.objects.get()
    assert (profile.address, profile.emails) == ("Weg 1\n10115 Berlin", ["a@b.example", "c@d.example"])
    page = console.post(at, form | {"address": "x" + "\n" * 20 + "x"})
    assert page.status_code == 422 and "At most 8 lines" in page.content.decode()
    assert console.post(at, form | {"email": "a@b.example, nobody"}).status_code == 422
    admin, developer = Client(), Client()
    admin.force_login(make_member(Role.ADMIN, owner.tenant).user)
    developer.force_login(make_member(Role.DEVELOPER, owner.tenant).user)
    shown = admin.get(at).content.decode()
    assert "Acme GmbH" in shown and 'name="legal_name"' not in shown
    assert admin.post(at, form | {"legal_name": "Other"}).status_code in (403, 422)
    assert developer.get(at).status_code == 403
    assert BillingProfile.objects.get().legal_name == "Acme GmbH"


def test_bank_details_and_reference_stand_on_the_invoice_until_it_is_paid(owner: Member, console: Client) -> None:
    Seller.objects.create(name="Penstock AG", bank_name="Bank of Rivers", bank_account=IBAN, bank_code="COBADEFFXXX")
    invoice = invoice_of(owner)
    text, at = pdf_text(invoice), reverse("page-invoice", args=[invoice.pk])
    assert all(each in text for each in (IBAN, "COBADEFFXXX", "Payment reference"))
    assert Api.of(owner).get(f"/invoices/{invoice.pk}").json()["seller"]["bank_account"] == IBAN
    assert "Pay by bank transfer" in console.get(at).content.decode()
    issuing.credit(acting=SYSTEM, invoice=invoice, amount=invoice.subtotal, note="Outage", now=NOW)
    assert "Pay by bank transfer" not in console.get(at).content.decode()


@pytest.mark.parametrize(
    ("account", "is_good"), [(IBAN, True), ("DE88 3704 0044 0532 0130 00", False), ("12-345", True)]
)
def test_an_iban_is_checked_where_it_is_entered(account: str, is_good: bool) -> None:
    seller = Seller(bank_account=account)
    if is_good:
        seller.full_clean()
        return
    with pytest.raises(ValidationError, match="check digits"):
        seller.full_clean()


def test_an_open_invoice_has_a_link_to_pay_where_a_provider_has_such_a_page(
    owner: Member, console: Client, settings: Any
) -> None:
    invoice = invoice_of(owner)
    caller, at = Api.of(owner), reverse("page-invoice", args=[invoice.pk])
    assert caller.get(f"/invoices/{invoice.pk}").json()["pay_url"] == ""
    assert ">Pay</a>" not in console.get(at).content.decode()
    settings.PAYMENTS_LINK = "https://pay.example/i/{invoice}?amount={amount}&currency={currency}"
    url = f"https://pay.example/i/{invoice.number}?amount={invoice.total}&currency=EUR"
    assert caller.get(f"/invoices/{invoice.pk}").json()["pay_url"] == url
    assert url.replace("&", "&amp;") in console.get(at).content.decode()
    issuing.credit(acting=SYSTEM, invoice=invoice, amount=invoice.subtotal, note="Outage", now=NOW)
    assert caller.get(f"/invoices/{invoice.pk}").json()["pay_url"] == ""


@pytest.mark.parametrize("text", ["http://pay.example/{invoice}", "javascript:alert(1)", "https://pay.example/ x"])
def test_an_address_to_pay_at_that_makes_no_sense_is_refused_at_the_start(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PAYMENTS_LINK", text)
    with pytest.raises(ValueError, match="PENSTOCK_PAYMENTS_LINK"):
        https_template("PENSTOCK_PAYMENTS_LINK")


def test_an_instance_without_a_price_is_one_line_that_is_not_known_and_hides_nothing_else(
    owner: Member, console: Client
) -> None:
    known, ghost = (make_instance(owner.tenant, name=name) for name in ("orders", "ghost-orders"))
    for each in (known, ghost):
        create_operations(each, NOW - timedelta(hours=3))
    Plan.objects.create(
        code="ghost", name="Ghost", bandwidth_mb_s=5, storage_gb=20, bandwidth_mb_s_max=20, storage_gb_max=200,
        partitions_max=50,
    )  # fmt: skip
    Operation.objects.filter(instance=ghost).update(plan="ghost")
    caller = Api.of(owner)

    costs, draft = caller.get("/costs").json(), caller.get("/invoices/draft").json()
    assert costs["unpriced"] == draft["unpriced"] == [ghost.pk]
    assert {item["key"] for item in costs["items"]} == {known.pk} and float(costs["total"]) > 0
    for by in ("day", "topic"):
        assert caller.get(f"/costs?group_by={by}").json()["total"] == costs["total"]
    usage = console.get(reverse("page-account-usage")).content.decode()
    listed = console.get(reverse("page-invoices")).content.decode()
    assert "not known" in usage and "ghost-orders" in usage and "ghost-orders" in listed
    Price.objects.create(
        plan_id="ghost", effective_from=NOW - timedelta(days=90), base_per_hour=1, per_mb_s_hour=0, per_gb_hour=0
    )
    assert caller.get("/costs").json()["unpriced"] == []


def test_working_out_again_what_has_no_inputs_says_that_there_are_none(owner: Member, console: Client) -> None:
    invoice = invoice_of(owner)
    note = issuing.credit(acting=SYSTEM, invoice=invoice, amount=invoice.subtotal, note="Outage", now=NOW)
    caller = Api.of(owner)
    found = caller.get(f"/invoices/{note.pk}/recompute").json()
    assert (found["has_inputs"], found["is_equal"]) == (False, None)
    found = caller.get(f"/invoices/{invoice.pk}/recompute").json()
    assert (found["has_inputs"], found["is_equal"]) == (True, True)
    page = console.get(reverse("page-invoice", args=[note.pk]) + "?recompute").content.decode()
    assert "nothing to work it out from" in page and "equal to the cent" not in page


def test_nothing_is_written_where_nothing_changes(owner: Member) -> None:
    for _ in range(2):
        details.change(acting=SYSTEM.within(owner.tenant), changes={"legal_name": "Acme GmbH"})
    assert AuditEntry.objects.filter(tenant=owner.tenant, action="billing_profile.changed").count() == 1


def test_an_invoice_is_a_file_of_structured_data_once_both_countries_are_known(owner: Member, console: Client) -> None:
    before = invoice_of(owner)
    page = reverse("page-invoice-xml", args=(before.pk,))
    assert_problem(Api.of(owner).get(f"/invoices/{before.pk}/xml"), 409, "no_country")
    assert "had no country" in console.get(page, follow=True).content.decode()

    Seller.objects.create(country="DE", tax_id="DE123456789")
    details.change(acting=SYSTEM.within(owner.tenant), changes={"country": "FR"})
    other = make_member()
    details.change(acting=SYSTEM.within(other.tenant), changes={"country": "FR"})
    after = invoice_of(other)
    answer = Api.of(other).get(f"/invoices/{after.pk}/xml")

    assert answer.headers["Content-Type"] == "application/xml"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{after.number}.xml"'
    assert f"<ram:ID>{after.number}</ram:ID>" in answer.content.decode()
    assert_problem(Api.of(other).get(f"/invoices/{before.pk}/xml"), 404, "not_found")


@pytest.mark.parametrize("country", ["XX", "de", "D", "Germany"])
def test_a_country_is_a_code_of_iso_3166(owner: Member, country: str) -> None:
    answer = Api.of(owner).patch("/billing-details", {"country": country})
    assert answer.status_code == 400 and "/country" in answer.content.decode()
