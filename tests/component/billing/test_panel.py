"""Plans and prices in the operator panel: who changed what everybody pays is in the audit log."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from billing import services
from billing.models import Plan
from tenants.models import AuditEntry, User

pytestmark = pytest.mark.django_db

NO_PRICE = {"prices-TOTAL_FORMS": "1", "prices-INITIAL_FORMS": "1", "prices-MIN_NUM_FORMS": "0"}


@pytest.fixture()
def panel() -> Client:
    services.ensure_default_plans()
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


def save(panel: Client, **values: str) -> None:
    plan = Plan.objects.get(code="brook")
    known = {"prices-0-id": str(plan.prices.get().pk), "prices-0-plan": "brook"}
    body = {"name": plan.name, "position": "0", "idle_stop_days": "0", "on_sale": "on", **NO_PRICE, **known, **values}
    answer = panel.post(reverse("admin:billing_plan_change", args=["brook"]), body)
    assert answer.status_code == 302, answer.content.decode()


def test_a_price_that_is_added_is_in_the_audit_log_with_all_its_parts(panel: Client) -> None:
    price = {
        "prices-TOTAL_FORMS": "2", "prices-1-plan": "brook", "prices-1-effective_from_0": "2027-01-01",
        "prices-1-effective_from_1": "00:00:00", "prices-1-currency": "EUR", "prices-1-base_per_hour": "0.0900",
        "prices-1-per_mb_s_hour": "0.0100", "prices-1-per_gb_hour": "0.000300",
    }  # fmt: skip
    save(panel, **price)
    entry = AuditEntry.objects.exclude(action="account.signed_in").get()
    assert (entry.action, entry.target_id, entry.before) == ("price.added", "brook", None)
    assert entry.after == {
        "effective_from": "2027-01-01T00:00:00Z", "currency": "EUR", "base_per_hour": "0.0900",
        "per_mb_s_hour": "0.0100", "per_gb_hour": "0.000300",
    }  # fmt: skip


def test_a_plan_that_changes_is_in_the_audit_log_and_one_that_does_not_is_not(panel: Client) -> None:
    save(panel)
    assert not AuditEntry.objects.exclude(action="account.signed_in").exists()
    save(panel, name="Creek")
    entry = AuditEntry.objects.exclude(action="account.signed_in").get()
    assert (entry.action, entry.before, entry.after) == ("plan.changed", {"name": "Brook"}, {"name": "Creek"})
