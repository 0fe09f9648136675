"""Prices and currencies, set by operators over REST and in the panel; other callers are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing import services
from billing.invoices.charging import draft
from billing.models import BillingProfile, Discount, Price
from tenants.models import AuditEntry, Member, Tenant, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.billing import create_operations, invoice_of
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

PRICES = "/operator/plans/brook/prices"
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def plans() -> None:
    services.ensure_default_plans()


@pytest.fixture()
def operator() -> Api:
    member = make_member()
    member.user.is_staff = member.user.is_superuser = True
    member.user.save()
    return Api.of(member, ["operator"])


@pytest.fixture()
def outsider() -> Member:
    return make_member()


def price(**more: Any) -> dict[str, Any]:
    new = {
        "currency": "JPY", "effective_from": "2026-01-01T00:00:00Z", "base_per_hour": "9.3", "per_mb_s_hour": "1.4",
        "per_gb_hour": "0.0313",
    }  # fmt: skip
    return new | more


def component(**more: Any) -> dict[str, Any]:
    return {"meter": "bytes_in", "tiers": [["100", "3.1", "0"], [None, "2.05", "0"]], **more}


def test_an_operator_adds_a_price_in_another_currency_and_a_tenant_pays_in_it(operator: Api) -> None:
    owner = make_member()
    added = operator.post(PRICES, price())
    changed = operator.put(f"/operator/tenants/{owner.tenant_id}/currency", {"currency": "JPY"})
    assert (added.status_code, changed.status_code) == (201, 200), (added.content, changed.content)

    create_operations(make_instance(Tenant.objects.get(pk=owner.tenant_id)), BEGUN)
    bill = draft(Tenant.objects.get(pk=owner.tenant_id), datetime(2026, 2, 1, 0, 30, tzinfo=UTC)).so_far

    assert Api.of(owner).get("/prices:quote?plan=brook").json()["per_month"] == "6789.00"
    assert (bill.currency, str(bill.subtotal)) == ("JPY", "9")
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
    assert {"price.added", "tenant.currency_changed"} <= set(actions)


def test_a_price_has_components_and_all_prices_of_a_plan_are_listed(operator: Api) -> None:
    later = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%dT00:00:00Z")
    body = price(currency="EUR", effective_from=later, components=[component(commit="500", overage_price="4")])
    added = operator.post(PRICES, body)
    assert added.status_code == 201, added.content
    listed = operator.get(PRICES).json()["items"]
    assert [each["effective_from"] for each in listed] == ["2026-01-01T00:00:00Z", later]
    (of,) = listed[1]["components"]
    assert (of["meter"], of["tiers"], of["commit"], of["overage_price"]) == (
        "bytes_in", [["100", "3.1", "0"], [None, "2.05", "0"]], "500.000000", "4.0000",
    )  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"currency": "EUR"},
        {"currency": "CLF"},
        {"currency": "€€€"},
        {"base_per_hour": "-1"},
        {"base_per_hour": "0.12345"},
        {"effective_from": "2026-01-01"},
        {"components": [component()]},
        {"components": [component(tiers=[["100", "3", "0"]])], "effective_from": "2099-01-01T00:00:00Z"},
        {"components": [component(tiers=[[None, "0.000000001", "0"]])], "effective_from": "2099-01-01T00:00:00Z"},
        {"components": [component(), component()], "effective_from": "2099-01-01T00:00:00Z"},
        {"components": [component()] * 7, "effective_from": "2099-01-01T00:00:00Z"},
        {"tiers": []},
    ],
    ids=lambda wrong: ",".join(f"{name}" for name in wrong),
)
def test_a_price_that_cannot_be_is_refused_in_words_and_changes_nothing(operator: Api, wrong: dict[str, Any]) -> None:
    before = Price.objects.count()
    problem = assert_problem(operator.post(PRICES, price(**wrong)), 400, "invalid_request")
    assert problem["errors"][0]["detail"]
    assert Price.objects.count() == before


def test_the_longest_price_is_taken(operator: Api) -> None:
    tiers = [[str(number), "0.12345678", "1"] for number in range(1, 20)] + [[None, "0.1", "1"]]
    meters = ("bytes_in", "bytes_out", "stored", "partitions", "connections", "bandwidth_p95")
    of = [component(meter=meter, tiers=tiers) for meter in meters]
    added = operator.post(PRICES, price(currency="EUR", effective_from="2099-01-01T00:00:00Z", components=of))
    assert added.status_code == 201, added.content


def test_a_missing_plan_or_tenant_is_not_found(operator: Api) -> None:
    assert_problem(operator.get("/operator/plans/ocean/prices"), 404, "not_found")
    assert_problem(operator.post("/operator/plans/ocean/prices", price()), 404, "not_found")
    assert_problem(operator.put("/operator/tenants/ten-00000000/currency", {"currency": "EUR"}), 404, "not_found")


def test_tenants_set_neither_prices_nor_currencies(outsider: Member) -> None:
    caller, other = Api.of(outsider), make_member()
    assert_problem(caller.get(PRICES), 403, "permission_denied")
    assert_problem(caller.post(PRICES, price()), 403, "permission_denied")
    for tenant_id in (outsider.tenant_id, other.tenant_id):
        answer = caller.put(f"/operator/tenants/{tenant_id}/currency", {"currency": "EUR"})
        assert_problem(answer, 403, "permission_denied")
    assert_problem(Api().post(PRICES, price()), 401)


def test_staff_without_the_panels_permission_may_not_either(db: None) -> None:
    member = make_member()
    member.user.is_staff = True
    member.user.save()
    caller = Api.of(member, ["operator"])
    assert_problem(caller.get(PRICES), 403, "permission_denied")
    assert_problem(caller.post(PRICES, price()), 403, "permission_denied")


def charged_by_instance(tenant: Tenant) -> None:
    make_instance(tenant)


def charged_by_invoice(tenant: Tenant) -> None:
    invoice_of(tenant)


def has_minimum(tenant: Tenant) -> None:
    BillingProfile.objects.create(tenant=tenant, minimum=Decimal(5))


def has_discount(tenant: Tenant) -> None:
    Discount.objects.create(tenant=tenant, code="FIVE", amount=Decimal(5))


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (charged_by_instance, "is_charged"),
        (charged_by_invoice, "is_charged"),
        (has_minimum, "has_amounts"),
        (has_discount, "has_amounts"),
    ],
)
def test_a_tenant_with_amounts_in_its_currency_keeps_it(operator: Api, prepare: Any, code: str) -> None:
    operator.post(PRICES, price())
    tenant = make_member().tenant
    prepare(tenant)
    assert_problem(operator.put(f"/operator/tenants/{tenant.pk}/currency", {"currency": "JPY"}), 409, code)
    assert Tenant.objects.get(pk=tenant.pk).currency == "EUR"


def test_a_currency_without_a_price_is_refused(operator: Api) -> None:
    tenant = make_member().tenant
    assert_problem(operator.put(f"/operator/tenants/{tenant.pk}/currency", {"currency": "SEK"}), 409, "no_price")
    assert_problem(operator.put(f"/operator/tenants/{tenant.pk}/currency", {"currency": "CLF"}), 400, "invalid_request")


def test_the_panel_sets_the_currency_with_the_billing_profile(operator: Api) -> None:
    operator.post(PRICES, price())
    tenant = make_member().tenant
    panel = Client()
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    body = {"tenant": tenant.pk, "currency": "sek", "tax_percent": "0", "minimum": "0"}

    refused = panel.post(reverse("admin:billing_billingprofile_add"), body)
    assert "No plan on sale has a price in SEK." in refused.content.decode()
    assert panel.post(reverse("admin:billing_billingprofile_add"), body | {"currency": "jpy"}).status_code == 302

    assert Tenant.objects.get(pk=tenant.pk).currency == "JPY"
    assert "JPY" in panel.get(reverse("admin:billing_billingprofile_changelist")).content.decode()
    kept = panel.post(reverse("admin:billing_billingprofile_change", args=[tenant.pk]), body | {"currency": ""})
    assert (kept.status_code, Tenant.objects.get(pk=tenant.pk).currency) == (302, "JPY")
