"""The ledger for tenants and operators: over REST, in the console and in the panel; refunds by operators."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from billing.ledger import posting
from billing.models import Invoice, LedgerEntry
from billing.payments import services as payments
from billing.payments.reported import ReportedPayment
from tenants.actors import system_actor
from tenants.choices import Role, Scope
from tenants.models import AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import (
    Api,
    Case,
    EndpointCases,
    assert_problem,
    make_member,
    make_user,
    pytest_generate_tests,
)
from tests.testkit.billing import DUE, invoice_of

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("test")
PAID_AT = datetime(2026, 10, 20, tzinfo=UTC)


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


def overpaid(tenant: Tenant, number: str = "PS-1", amount: str = "12.50") -> Invoice:
    """Creates an invoice over 10.00 for which more was paid."""
    invoice = invoice_of(tenant, number)
    reported = ReportedPayment(
        payment_id=f"pay {number}", invoice_number=number, amount=Decimal(amount), currency=invoice.currency
    )
    payments.receive(reported, PAID_AT)
    return invoice


class TestEndpointsOfTheLedger(EndpointCases):
    cases = (
        Case("GET", "/ledger", Scope.BILLING_READ),
        Case("GET", "/ledger/balances", Scope.BILLING_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        overpaid(owner.tenant)
        return {}


def test_entries_come_in_their_order_with_the_balance_after_each_and_no_transfers(owner: Member) -> None:
    invoice = overpaid(owner.tenant)
    caller = Api.of(owner)

    items = caller.get("/ledger").json()["items"]

    assert [(item["kind"], item["amount"], item["balance"]) for item in items] == [
        ("invoice", "10.00", "10.00"),
        ("payment", "-12.50", "-2.50"),
    ]
    assert [(item["invoice"], item["number"], item["reference"]) for item in items] == [
        (invoice.pk, "PS-1", ""),
        (invoice.pk, None, "payment pay PS-1"),
    ]
    first = caller.get("/ledger?page_size=1").json()
    second = caller.get(f"/ledger?page_size=1&page_token={first['next_page_token']}").json()
    assert [*first["items"], *second["items"]] == items and second["next_page_token"] is None
    assert caller.get("/ledger?currency=USD").json()["items"] == []
    for wrong in ("currency=eur", "currency=" + "E" * 5_000, "page_size=0", "other=1"):
        assert_problem(caller.get(f"/ledger?{wrong}"), 400)


def test_the_balance_is_known_at_any_time(owner: Member) -> None:
    overpaid(owner.tenant)
    caller = Api.of(owner)

    def balances(at: datetime | None = None) -> list[tuple[str, str, str]]:
        asked = "" if at is None else f"?at={at:%Y-%m-%dT%H:%M:%SZ}"
        items = caller.get(f"/ledger/balances{asked}").json()["items"]
        return [(item["balance"], item["open_amount"], item["credit"]) for item in items]

    assert balances() == [("-2.50", "0.00", "2.50")]
    assert balances(PAID_AT - timedelta(seconds=1)) == [("10.00", "10.00", "0.00")]
    assert balances(DUE - timedelta(days=300)) == []
    assert_problem(caller.get("/ledger/balances?at=yesterday"), 400)


def test_nobody_sees_the_ledger_of_another_tenant_and_only_members_who_may_see_money_see_their_own(
    owner: Member,
) -> None:
    overpaid(owner.tenant)
    stranger = Api.of(make_member())
    assert stranger.get("/ledger").json()["items"] == stranger.get("/ledger/balances").json()["items"] == []
    developer = Api.of(make_member(Role.DEVELOPER, owner.tenant))
    assert developer.get("/ledger").status_code == developer.get("/ledger/balances").status_code == 403


def test_the_statement_shows_balance_credit_and_entries_and_the_file_has_all_of_them(owner: Member) -> None:
    invoice = overpaid(owner.tenant)
    client = Client()
    client.force_login(owner.user)

    page = client.get(reverse("page-ledger")).content.decode()
    opened = client.get(reverse("page-invoice", args=[invoice.pk])).content.decode()
    listed = client.get(reverse("page-invoices")).content.decode()
    file = client.get(reverse("page-ledger-csv"))

    assert "in your favour" in page and "−€ 2.50" in page and "PS-1" in page
    assert "payment pay PS-1" in opened and "To the credit balance" in opened
    assert "credit € 2.50" in listed
    rows = list(csv.DictReader(io.StringIO(b"".join(file.streaming_content).decode())))  # type: ignore[attr-defined]
    assert [(row["kind"], row["amount"], row["balance"]) for row in rows] == [
        ("invoice", "10.00", "10.00"),
        ("payment", "-12.50", "-2.50"),
    ]
    User.objects.filter(pk=owner.user_id).update(language="zh-hans")
    assert "还没有分录" in client.get(reverse("page-ledger") + "?currency=USD").content.decode()
    for wrong in ("%00%22", "USD%0A", "%0D%0AX: 1", "usd"):
        for page_of_it in ("page-ledger", "page-ledger-csv"):
            answer = client.get(reverse(page_of_it) + f"?currency={wrong}")
            assert answer.status_code == 200
        assert answer.headers["Content-Disposition"] == 'attachment; filename="ledger-EUR.csv"'


def test_an_operator_sees_who_has_credit_and_records_a_refund_once(panel: Client, owner: Member) -> None:
    overpaid(owner.tenant)
    page = panel.get(reverse("admin:billing_credits")).content.decode()
    at = reverse("admin:billing_refund", args=[owner.tenant.pk, "EUR"])
    assert owner.tenant.name in page and "€ 2.50" in page and at in page
    assert "2.50" in panel.get(at).content.decode()

    for amount, reference in (("2.51", "sepa 9"), ("x", "sepa 9"), ("1.00", " "), ("9" * 400, "sepa 9")):
        assert panel.post(at, {"amount": amount, "reference": reference}).status_code == 200
    assert posting.credit_balance(owner.tenant, "EUR") == Decimal("2.50")
    assert panel.post(at, {"amount": "2.50", "reference": "sepa 9"}).status_code == 302
    assert panel.post(at, {"amount": "2.50", "reference": "sepa 9"}).status_code == 200

    assert posting.balance(owner.tenant, "EUR") == 0
    assert AuditEntry.objects.filter(tenant=owner.tenant, action="ledger.refunded").count() == 1
    entries = panel.get(reverse("admin:billing_ledgerentry_changelist")).content.decode()
    assert (
        "sepa 9" in entries and "No tenant has credit." in panel.get(reverse("admin:billing_credits")).content.decode()
    )


def test_staff_who_may_only_see_invoices_refund_nothing_and_tenants_reach_no_page(owner: Member) -> None:
    overpaid(owner.tenant)
    at = reverse("admin:billing_refund", args=[owner.tenant.pk, "EUR"])
    looker, client = make_user(is_staff=True), Client()
    looker.user_permissions.set(Permission.objects.filter(codename="view_invoice"))
    client.force_login(looker)
    assert client.get(reverse("admin:billing_credits")).status_code == 200
    assert client.post(at, {"amount": "1.00", "reference": "x"}).status_code == 403
    member = Client()
    member.force_login(owner.user)
    assert member.post(at, {"amount": "1.00", "reference": "x"}).status_code in (302, 403)
    assert not LedgerEntry.objects.filter(kind="refund").exists()


def test_a_refund_is_recorded_by_the_command_as_well(owner: Member) -> None:
    overpaid(owner.tenant)

    def run(*words: str) -> str:
        out = StringIO()
        call_command("invoices", "refund", *words, stdout=out)
        return out.getvalue().strip()

    slug = owner.tenant.slug
    said = run(slug, "--amount", "2.50", "--reference", "sepa 1")
    assert said == f"{slug}: 2.50 EUR refunded, balance 0.00"
    for words in (("nobody", "--amount", "1"), (slug, "--amount", "1"), (slug, "--amount", "many")):
        with pytest.raises(CommandError):
            run(*words, "--reference", "sepa 2")
