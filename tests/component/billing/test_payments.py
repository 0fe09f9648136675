"""Payments reported by a provider: signed, counted once; those that match nothing are kept for an operator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connections
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from billing.dunning import services as dunning
from billing.invoices import issuing
from billing.ledger import posting
from billing.models import Invoice, InvoiceState, Payment, Seller
from billing.views import payments as payment_views
from tenants.actors import system_actor
from tenants.models import AuditEntry, Tenant, User
from tests.testkit.api_cases import Api, make_member
from tests.testkit.billing import DUE, invoice_of
from tests.testkit.payment_provider import SECRET, document, post_report, send_report, signature_headers

pytestmark = pytest.mark.django_db

FORMER = "whsec_" + "b2xk" * 8


@pytest.fixture(autouse=True)
def provider(settings: Any) -> None:
    """A connected provider whose secret is being rotated."""
    settings.PAYMENTS_SECRETS = (SECRET, FORMER)


@pytest.fixture()
def tenant() -> Tenant:
    return make_member().tenant


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


def state_of(invoice: Invoice) -> tuple[str, str]:
    found = Invoice.objects.get(pk=invoice.pk)
    return found.state, found.reference


def problems() -> list[str]:
    return list(Payment.objects.order_by("pk").values_list("problem", flat=True))


def test_a_payment_in_full_closes_its_invoice_and_is_in_the_audit_log(tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    assert send_report("pay_1", "PS-1", "10.00").status_code == 200
    assert state_of(invoice) == ("paid", "payment pay_1") and problems() == [""]
    assert AuditEntry.objects.filter(tenant=tenant, action="invoice.paid").count() == 1


def test_parts_add_up_and_what_is_open_is_said_meanwhile(tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    api, at = Api.of(tenant.members.get()), f"/invoices/{invoice.pk}"
    send_report("pay_1", "PS-1", "4.00")
    issuing.credit(
        acting=system_actor("test"), invoice=invoice, amount=Decimal("1.00"), note="Outage", now=timezone.now()
    )
    assert state_of(invoice)[0] == "issued" and api.get(at).json()["open_amount"] == "5.00"
    send_report("pay_2", "PS-1", "5.00")
    assert state_of(invoice)[0] == "paid" and api.get(at).json()["open_amount"] == "0.00"


def test_a_report_that_comes_again_changes_nothing(tenant: Tenant) -> None:
    invoice_of(tenant)
    for amount in ("4.00", "4.00", "6.00"):
        assert send_report("pay_1", "PS-1", amount).status_code == 200
    assert [payment.amount for payment in Payment.objects.all()] == [Decimal("4.00")]


def test_an_unmatched_payment_is_kept_with_its_problem_and_becomes_credit_for_other_invoices(tenant: Tenant) -> None:
    first, second, third = (invoice_of(tenant, f"PS-{n}", DUE + timedelta(days=31 * n)) for n in (1, 2, 3))
    send_report("pay_1", "PS-404", "10.00")
    send_report("pay_2", "PS-1", "10.00")
    send_report("pay_3", "PS-1", "10.00")
    body = json.dumps(document("pay_4", "PS-3", "10.00", "USD")).encode()
    post_report(body, signature_headers(body))
    assert [state_of(each)[0] for each in (first, second, third)] == ["paid", "settled", "issued"]
    send_report("pay_5", "PS-3", "11.00")
    assert problems() == ["unknown_invoice", "", "closed", "other_currency", "overpaid"]
    assert state_of(third)[0] == "paid"
    assert (posting.credit_balance(tenant, "EUR"), posting.credit_balance(tenant, "USD")) == (Decimal(1), Decimal(10))


def test_an_operator_says_once_that_a_problem_is_looked_after_and_the_audit_log_has_it(panel: Client) -> None:
    send_report("pay_1", "PS-404", "10.00")
    payment = Payment.objects.get()
    chosen = {"action": "mark_handled", "_selected_action": [payment.pk]}
    for _ in range(2):
        panel.post(reverse("admin:billing_payment_changelist"), chosen, follow=True)
    payment.refresh_from_db()
    assert payment.handled_at is not None and payment.problem == "unknown_invoice"
    assert AuditEntry.objects.filter(action="payment.handled").count() == 1
    chosen_of_nobody = Client().post(reverse("admin:billing_payment_changelist"), chosen)
    assert chosen_of_nobody.status_code == 302 and "login" in chosen_of_nobody["Location"]


def test_a_suspended_tenant_is_resumed_by_its_payment(tenant: Tenant, django_capture_on_commit_callbacks: Any) -> None:
    Seller.objects.create(suspend_days=20)
    invoice = invoice_of(tenant)
    for days_ago in (1, 0):
        dunning.dun(timezone.now() - timedelta(days=days_ago))
    assert Tenant.objects.get(pk=tenant.pk).is_suspended
    send_report("pay_1", "PS-1", "9.99")
    assert Tenant.objects.get(pk=tenant.pk).is_suspended
    send_report("pay_2", "PS-1", "0.01")
    assert not Tenant.objects.get(pk=tenant.pk).is_suspended and state_of(invoice)[0] == "paid"


BODY = json.dumps(document("pay_1", "PS-1", "10.00")).encode()
# Made when they are sent: some are of an instant.
FORGERIES: dict[str, Callable[[], dict[str, str]]] = {
    "no signature": dict,
    "another secret": lambda: signature_headers(BODY, secret="whsec_" + "YWJj" * 8),
    "another body": lambda: signature_headers(BODY + b" "),
    "too old": lambda: signature_headers(BODY, at_s=time.time() - 400),
    "of the future": lambda: signature_headers(BODY, at_s=time.time() + 400),
    "another id": lambda: signature_headers(BODY) | {"webhook-id": "msg_2"},
    "another time": lambda: signature_headers(BODY) | {"webhook-timestamp": str(int(time.time()) - 1)},
    "a time without end": lambda: signature_headers(BODY) | {"webhook-timestamp": "9" * 5_000},
    "no number": lambda: signature_headers(BODY) | {"webhook-timestamp": "-1e3"},
    "letters of any script": lambda: signature_headers(BODY) | {"webhook-timestamp": "١٢٣"},
    "not even base64": lambda: signature_headers(BODY) | {"webhook-signature": "v1,%%% v1, v2,x" + " v1,a" * 500},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_an_unsigned_report_is_refused_and_changes_nothing(tenant: Tenant, name: str) -> None:
    invoice = invoice_of(tenant)
    assert post_report(BODY, FORGERIES[name]()).status_code == 401
    assert state_of(invoice)[0] == "issued" and not Payment.objects.exists()


def test_a_currency_in_small_letters_is_the_currency(tenant: Tenant) -> None:
    invoice = invoice_of(tenant)
    send_report("pay_1", "PS-1", "10.00", "eur")
    assert (state_of(invoice)[0], problems(), posting.balance(tenant, "EUR")) == ("paid", [""], 0)


def test_both_secrets_count_while_one_is_rotated_and_none_is_no_provider(tenant: Tenant) -> None:
    invoice_of(tenant)
    assert send_report("pay_1", "PS-1", "1.00", secret=FORMER).status_code == 200
    with override_settings(PAYMENTS_SECRETS=()):
        assert send_report("pay_2", "PS-1", "1.00").status_code == 404
    assert Payment.objects.count() == 1


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"amount": "-1.00"}, {"amount": "0"}, {"amount": "1.001"}, {"amount": "NaN"},
        {"amount": "1e9999"}, {"amount": 10.0}, {"amount": "9" * 40}, {"payment_id": ""}, {"payment_id": "x" * 101},
        {"payment_id": "\x00"}, {"invoice": None}, {"currency": "EURO"}, {"currency": 7},
        {"currency": "€€€"}, {"currency": "E"}, {"currency": "12"}, {"currency": "\u0395UR"},
    ],
)  # fmt: skip
def test_a_report_that_makes_no_sense_says_so_and_is_not_kept(tenant: Tenant, data: Any) -> None:
    invoice_of(tenant)
    whole = document("pay_1", "PS-1", "10.00")
    whole["data"] = whole["data"] | data if isinstance(data, dict) and data else data
    body = json.dumps(whole).encode()
    assert post_report(body, signature_headers(body)).status_code == 400
    assert not Payment.objects.exists()


@pytest.mark.parametrize("body", [b"", b"[", b"[" * 60_000, b'"x"', b"\xff\xfe"])
def test_a_body_that_is_no_document_is_refused(body: bytes) -> None:
    assert post_report(body, signature_headers(body)).status_code == 400


def test_other_events_are_taken_and_of_no_concern_and_a_large_body_is_not_read() -> None:
    body = json.dumps({"type": "payment.refunded", "data": {}}).encode()
    assert post_report(body, signature_headers(body)).status_code == 200
    large = b"x" * (payment_views.BODY_BYTES_MAX + 1)
    assert post_report(large, signature_headers(large)).status_code == 413
    assert not Payment.objects.exists()


def test_reports_from_one_address_are_limited_per_minute(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payment_views, "REPORTS_PER_MINUTE_MAX", 2)
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=True):
        assert [post_report(BODY, {}).status_code for _ in range(3)] == [401, 401, 429]


@pytest.mark.django_db(transaction=True)
def test_the_same_payment_eight_times_at_once_closes_once_and_different_ones_lose_nothing() -> None:
    tenant = make_member().tenant
    first, second = invoice_of(tenant), invoice_of(tenant, "PS-2", DUE + timedelta(days=31))

    def send(what: tuple[str, str, str]) -> int:
        try:
            return send_report(*what).status_code
        finally:
            connections.close_all()

    reports = [("pay_1", "PS-1", "10.00")] * 8 + [(f"part_{n}", "PS-2", "1.25") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, reports)) == {200}

    assert Payment.objects.count() == 9 and problems() == [""] * 9
    assert state_of(first)[0] == state_of(second)[0] == InvoiceState.PAID
    assert AuditEntry.objects.filter(tenant=tenant, action="invoice.paid").count() == 2
