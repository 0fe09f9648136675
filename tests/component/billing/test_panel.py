"""Plans and prices in the operator panel: changes of public prices are in the audit log."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from billing import services
from billing.models import Plan, Price
from tenants.models import AuditEntry, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.instances import make_instance

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


NEW_PLAN = {
    "code": "lake", "name": "Lake", "bandwidth_mb_s": "5", "storage_gb": "20", "bandwidth_mb_s_max": "20",
    "storage_gb_max": "200", "partitions_max": "50", "position": "9", "idle_stop_days": "0",
    "prices-TOTAL_FORMS": "0", "prices-INITIAL_FORMS": "0", "prices-MIN_NUM_FORMS": "0",
}  # fmt: skip
NEW_PRICE = {
    "prices-TOTAL_FORMS": "1",
    "prices-0-effective_from_1": "00:00:00", "prices-0-currency": "EUR", "prices-0-base_per_hour": "0.09",
    "prices-0-per_mb_s_hour": "0.01", "prices-0-per_gb_hour": "0.0003",
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "is_made"),
    [
        ({"on_sale": "on"}, False),
        ({"on_sale": "on", "prices-0-effective_from_0": "2099-01-01"} | NEW_PRICE, False),
        ({"on_sale": "on", "prices-0-effective_from_0": "2026-01-01"} | NEW_PRICE, True),
        ({}, True),
    ],
)
def test_a_plan_is_put_on_sale_with_a_price_that_has_begun(
    panel: Client, values: dict[str, str], is_made: bool
) -> None:
    answer = panel.post(reverse("admin:billing_plan_add"), NEW_PLAN | values)
    assert (answer.status_code == 302) is is_made is Plan.objects.filter(code="lake").exists()
    assert is_made or "needs a price that has begun" in answer.content.decode()


def test_a_plan_without_a_price_in_the_tenants_currency_is_not_sold_and_operators_read_it(panel: Client) -> None:
    owner = make_member()
    Price.objects.filter(plan_id="stream").update(currency="USD")
    Plan.objects.create(
        code="lake", name="Lake", bandwidth_mb_s=5, storage_gb=20, bandwidth_mb_s_max=20, storage_gb_max=200,
        partitions_max=50,
    )  # fmt: skip
    caller = Api.of(owner)
    assert [plan["code"] for plan in caller.get("/plans").json()["items"]] == ["brook", "river", "delta"]
    for code in ("lake", "stream"):
        assert_problem(caller.post("/instances", {"name": "x", "plan": code}), 400)
    make_instance(owner.tenant, plan="stream")
    home = panel.get(reverse("admin:index")).content.decode()
    assert "nobody can buy, for want of a price: Lake" in home and "1 instance has no price" in home
    assert "stream (EUR)" in home
