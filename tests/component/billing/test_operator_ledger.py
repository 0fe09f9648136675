"""Tenants' ledgers over the operators' REST, with entries by operators, and the panel's page of credit notes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.invoices import issuing
from billing.ledger import posting
from billing.models import Invoice, InvoiceState, LedgerEntry
from tenants.actors import system_actor
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.billing import DUE, invoice_of

pytestmark = pytest.mark.django_db

SYSTEM = system_actor("invoices")


@pytest.fixture()
def operator() -> Api:
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


@pytest.fixture()
def tenant() -> Tenant:
    return make_member().tenant


def paths(tenant: Tenant, invoice: Invoice) -> list[tuple[str, str, dict[str, str]]]:
    of = f"/operator/tenants/{tenant.pk}"
    return [
        ("get", f"{of}/ledger", {}),
        ("get", f"{of}/ledger/balances", {}),
        ("post", f"{of}/refunds", {"amount": "1.00", "reference": "r"}),
        ("post", f"/operator/invoices/{invoice.pk}/close", {"state": "paid", "reference": "r"}),
        ("post", f"/operator/invoices/{invoice.pk}/credit", {"amount": "1.00", "note": "n"}),
    ]


def call(api: Api, method: str, path: str, body: dict[str, str]) -> Any:
    return api.get(path) if method == "get" else api.post(path, body)


def test_the_ledger_is_listed_by_pages_and_its_balance_is_that_of_any_time(operator: Api, tenant: Tenant) -> None:
    first, second = invoice_of(tenant), invoice_of(tenant, "PS-2", DUE + timedelta(days=31), total="5.00")
    issuing.close(acting=SYSTEM, invoice=first, state=InvoiceState.PAID, reference="bank 7", now=timezone.now())
    of = f"/operator/tenants/{tenant.pk}/ledger"

    page = operator.get(f"{of}?page_size=2").json()
    rest = operator.get(f"{of}?page_size=2&page_token={page['next_page_token']}").json()

    entries = [(each["kind"], each["amount"], each["balance"]) for each in page["items"] + rest["items"]]
    assert entries == [("invoice", "10.00", "10.00"), ("invoice", "5.00", "15.00"), ("payment", "-10.00", "5.00")]
    assert rest["next_page_token"] is None
    (now,) = operator.get(f"{of}/balances").json()["items"]
    assert now == {"currency": "EUR", "balance": "5.00", "open_amount": "5.00", "credit": "0.00"}
    at = (second.issued_at - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (then,) = operator.get(f"{of}/balances?at={at}").json()["items"]
    assert then["balance"] == "10.00"
    assert operator.get(f"{of}?currency=USD").json()["items"] == []


def test_an_invoice_is_closed_once_and_its_payment_posted(operator: Api, tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    path, body = f"/operator/invoices/{invoice.pk}/close", {"state": "paid", "reference": "bank 7"}
    assert operator.post(f"{path}?dry_run=true", body).status_code == 200
    assert Invoice.objects.get(pk=invoice.pk).state == "issued"
    closed = operator.post(path, body)
    assert (closed.status_code, closed.json()["state"], closed.json()["open_amount"]) == (200, "paid", "0.00")
    assert LedgerEntry.objects.get(kind="payment").reference == "bank 7"
    assert_problem(operator.post(path, body), 409, "conflict")
    row = AuditEntry.objects.get(action="invoice.paid")
    assert (row.tenant, row.after["reference"]) == (tenant, "bank 7")


def test_a_credit_note_makes_credit_that_is_paid_back_once(operator: Api, tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    operator.post(f"/operator/invoices/{invoice.pk}/close", {"state": "paid", "reference": "bank 7"})
    made = operator.post(f"/operator/invoices/{invoice.pk}/credit", {"amount": "4.00", "note": "Outage"})
    assert (made.status_code, made.json()["total"], made.json()["note"]) == (201, "-4.00", "Outage"), made.content
    of = f"/operator/tenants/{tenant.pk}"
    entry = operator.post(f"{of}/refunds", {"amount": "3.50", "reference": "bank 8"})
    assert (entry.status_code, entry.json()["amount"], entry.json()["balance"]) == (201, "3.50", "-0.50")
    again = operator.post(f"{of}/refunds", {"amount": "0.50", "reference": "bank 8"})
    assert_problem(again, 409, "already_refunded")
    assert posting.credit_balance(tenant, "EUR") == Decimal("0.50")


@pytest.mark.parametrize("amount", ["0", "-1", "0.001", "10.01", "1e30", "NaN", "999999999999.99"])
def test_amounts_that_cannot_be_are_refused_and_nothing_is_entered(operator: Api, tenant: Tenant, amount: str) -> None:
    invoice = invoice_of(tenant)
    before = LedgerEntry.objects.count()
    for path, body in (
        (f"/operator/tenants/{tenant.pk}/refunds", {"amount": amount, "reference": "r"}),
        (f"/operator/invoices/{invoice.pk}/credit", {"amount": amount, "note": "n"}),
    ):
        refused = operator.post(path, body)
        assert refused.status_code == 400, refused.content
    assert LedgerEntry.objects.count() == before


def test_a_credit_note_is_not_credited_and_what_is_not_there_is_not_found(operator: Api, tenant: Tenant) -> None:
    note = issuing.credit(acting=SYSTEM, invoice=invoice_of(tenant), amount=Decimal(1), note="n", now=timezone.now())
    assert operator.post(f"/operator/invoices/{note.pk}/credit", {"amount": "1", "note": "n"}).status_code == 400
    assert operator.post(f"/operator/invoices/{note.pk}/close", {"state": "paid", "reference": "r"}).status_code in (
        400,
        409,
    )
    assert operator.get("/operator/tenants/ten-zzzzzzzz/ledger").status_code == 404
    assert operator.post("/operator/invoices/inv-zzzzzzzz/credit", {"amount": "1", "note": "n"}).status_code == 404


def test_neither_tenants_nor_staff_without_the_permission_may(tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    viewer = make_member()
    viewer.user.is_staff = True
    viewer.user.save()
    viewer.user.user_permissions.add(Permission.objects.get(codename="view_invoice"))
    for method, path, body in paths(tenant, invoice):
        assert call(Api.of(tenant.members.get()), method, path, body).status_code == 403
        wanted = 200 if method == "get" else 403
        assert call(Api.of(viewer, ["operator"]), method, path, body).status_code == wanted
    assert LedgerEntry.objects.count() == 1


def test_the_panel_issues_a_credit_note(client: Client, tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    listed = reverse("admin:billing_invoice_changelist")
    chosen = client.post(listed, {"action": "credit_note", "_selected_action": [invoice.pk]})
    page = reverse("admin:billing_credit_note", args=[invoice.pk])
    assert chosen.url == page
    assert "Not credited yet: € 10.00" in client.get(page).content.decode()
    for amount in ("11", "1e30", "ten", "0"):
        assert "Between 0.01 and what is left" in client.post(page, {"amount": amount, "note": "n"}).content.decode()
    assert client.post(page, {"amount": "10", "note": "Outage"}).status_code == 302
    assert Invoice.objects.get(corrects=invoice).total == Decimal(-10)
    assert "All of it is credited." in client.get(page).content.decode()
