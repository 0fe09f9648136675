"""Overdue invoices: one reminder, a suspension, and its end after payment; an operator's suspension stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.dunning import services as dunning
from billing.invoices import issuing
from billing.models import InvoiceReminder, InvoiceState, Seller, UnpaidSuspension
from instances.choices import OperationType
from instances.models import Operation
from notifications.models import WebhookDelivery
from notifications.webhooks import services as webhooks
from tenants import services as tenant_services
from tenants.actors import member_actor, system_actor
from tenants.choices import Role, SuspensionReason
from tenants.models import Member, Tenant, User
from tests.testkit.api_cases import Api, make_member
from tests.testkit.billing import DUE, invoice_of
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

PLATFORM = system_actor("test")


@pytest.fixture()
def tenant() -> Tenant:
    Seller.objects.create(suspend_days=20)
    return make_member().tenant


def look(days_overdue: float, capture: Callable[..., Any]) -> list[str]:
    """Runs the task once; returns the subjects of its mails."""
    before = len(mail.outbox)
    with capture(execute=True):
        dunning.dun(DUE + timedelta(days=days_overdue))
    return [message.subject for message in mail.outbox[before:]]


def is_suspended(tenant: Tenant) -> bool:
    return Tenant.objects.get(pk=tenant.pk).is_suspended


def test_it_is_reminded_of_twice_then_the_tenant_is_suspended_and_resumed_when_it_is_paid(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    instance = make_running(tenant)
    invoice = invoice_of(tenant)
    said = ["[Penstock] Invoice PS-1 is overdue"]
    looks = [look(day, django_capture_on_commit_callbacks) for day in (-1, 0, 2.9, 3, 5, 10, 19.9)]
    assert looks == [[], [], [], said, [], said, []]
    assert "€ 10.00 of it are open" in mail.outbox[-1].body and "2026-11-04" in mail.outbox[-1].body
    assert not is_suspended(tenant)

    look(20, django_capture_on_commit_callbacks)
    found = Tenant.objects.get(pk=tenant.pk)
    assert (found.suspension_reason, found.suspension_note) == ("unpaid", "Invoice PS-1 was due on 2026-10-15.")
    assert Operation.objects.filter(instance=instance, type=OperationType.SUSPEND).count() == 1
    look(21, django_capture_on_commit_callbacks)
    assert is_suspended(tenant) and UnpaidSuspension.objects.count() == 1

    issuing.close(acting=PLATFORM, invoice=invoice, state=InvoiceState.PAID, reference="bank", now=timezone.now())

    assert not is_suspended(tenant) and not UnpaidSuspension.objects.exists()
    assert Operation.objects.filter(instance=instance, type=OperationType.RESUME).count() == 1


def test_only_the_later_of_two_missed_reminders_is_sent(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    invoice_of(tenant)
    assert len(look(12, django_capture_on_commit_callbacks)) == 1
    assert look(13, django_capture_on_commit_callbacks) == []
    assert [each.number for each in InvoiceReminder.objects.all()] == [2]


def test_where_suspensions_are_turned_on_over_a_backlog_a_reminder_comes_a_day_before(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    invoice_of(tenant)
    assert len(look(300, django_capture_on_commit_callbacks)) == 1
    for day, is_over in ((300.9, False), (301, True)):
        look(day, django_capture_on_commit_callbacks)
        assert is_suspended(tenant) is is_over


def test_with_another_invoice_overdue_a_payment_resumes_nobody(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    first, second = invoice_of(tenant), invoice_of(tenant, "PS-2", DUE + timedelta(days=1))
    look(29, django_capture_on_commit_callbacks)
    look(30, django_capture_on_commit_callbacks)
    for invoice, is_over in ((first, False), (second, True)):
        issuing.close(acting=PLATFORM, invoice=invoice, state=InvoiceState.PAID, reference="bank", now=timezone.now())
        assert is_suspended(tenant) is not is_over


def test_a_fully_credited_invoice_is_not_owed(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    invoice = invoice_of(tenant)
    look(29, django_capture_on_commit_callbacks)
    look(30, django_capture_on_commit_callbacks)
    assert is_suspended(tenant)
    issuing.credit(acting=PLATFORM, invoice=invoice, amount=Decimal("10.00"), note="Outage", now=timezone.now())
    look(31, django_capture_on_commit_callbacks)
    assert not is_suspended(tenant)


@pytest.mark.parametrize("was", ["before", "meanwhile"])
def test_a_suspension_of_an_operators_is_left_alone(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any], was: str
) -> None:
    invoice = invoice_of(tenant)
    if was == "meanwhile":
        look(29, django_capture_on_commit_callbacks)
        look(30, django_capture_on_commit_callbacks)
        tenant_services.resume_tenant(acting=PLATFORM, tenant=tenant)
    tenant_services.suspend_tenant(acting=PLATFORM, tenant=tenant, reason=SuspensionReason.ABUSE)
    look(31, django_capture_on_commit_callbacks)
    issuing.close(acting=PLATFORM, invoice=invoice, state=InvoiceState.PAID, reference="bank", now=timezone.now())
    look(32, django_capture_on_commit_callbacks)
    assert Tenant.objects.get(pk=tenant.pk).suspension_reason == "abuse"


def test_nobody_is_suspended_until_the_seller_says_after_how_many_days(
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    tenant = make_member().tenant
    invoice_of(tenant)
    assert len(look(400, django_capture_on_commit_callbacks)) == 1
    assert "suspended" not in mail.outbox[-1].body and not is_suspended(tenant)


def test_paid_in_time_or_nothing_to_pay_is_nobodys_business(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    other = make_member().tenant
    invoice_of(other, "PS-7", total="0.00")
    issuing.close(
        acting=PLATFORM, invoice=invoice_of(tenant), state=InvoiceState.PAID, reference="bank", now=timezone.now()
    )
    assert look(400, django_capture_on_commit_callbacks) == []
    assert not is_suspended(tenant) and not is_suspended(other)


@pytest.mark.parametrize("days", [(10, 3, 0), (3, 3, 0), (3, 10, 9), (0, 10, 10)])
def test_steps_come_one_after_the_other(days: tuple[int, int, int]) -> None:
    first, second, suspend = days
    with pytest.raises(ValidationError, match="after"):
        Seller(first_reminder_days=first, second_reminder_days=second, suspend_days=suspend).clean()


def test_a_suspended_tenant_reads_why(tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]) -> None:
    invoice_of(tenant)
    look(29, django_capture_on_commit_callbacks)
    look(30, django_capture_on_commit_callbacks)
    member = tenant.members.get()
    answer = Api.of(member).post("/instances", {"name": "x", "plan": "brook"})
    assert answer.status_code == 402
    assert Api.of(member).get("/invoices").json()["items"][0]["state"] == "overdue"


def test_webhooks_report_every_change_of_an_invoice(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    webhooks.create_endpoint(acting=member_actor(Member.objects.get(tenant=tenant)), url="https://example.com/")
    invoice = invoice_of(tenant)
    look(3, django_capture_on_commit_callbacks)
    note = issuing.credit(acting=PLATFORM, invoice=invoice, amount=Decimal(1), note="a gift", now=timezone.now())
    issuing.close(acting=PLATFORM, invoice=invoice, state=InvoiceState.PAID, reference="bank", now=timezone.now())

    sent = WebhookDelivery.objects.order_by("created_at", "pk").values_list("event", "payload__data__number")
    assert list(sent)[-3:] == [
        ("invoice.overdue", "PS-1"),
        ("invoice.credited", note.number),
        ("invoice.paid", "PS-1"),
    ]
    overdue = WebhookDelivery.objects.get(event="invoice.overdue").payload["data"]
    assert (overdue["open_amount"], overdue["reminder"]) == ("10.00", 1)


def test_overdue_invoices_stand_on_the_first_page_of_the_tenant_and_of_the_operator(tenant: Tenant) -> None:
    make_running(tenant)
    owner, client, panel = tenant.members.get(), Client(), Client()
    client.force_login(owner.user)
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    assert "All well" in client.get(reverse("page-instances")).content.decode()
    invoice_of(tenant, due=timezone.now() - timedelta(days=44, hours=1))

    page = client.get(reverse("page-instances")).content.decode()
    home = panel.get(reverse("admin:index")).content.decode()
    assert "€ 10.00 overdue, for 44 days" in page and "All well" not in page and reverse("page-invoices") in page
    assert "1 invoice is overdue, for 44 days: € 10.00." in home and reverse("admin:billing_overdue") in home

    client.force_login(make_member(Role.DEVELOPER, tenant).user)
    page = client.get(reverse("page-instances")).content.decode()
    assert "An invoice is overdue, for 44 days" in page and "10.00" not in page and "All well" not in page
