"""The price of an instance: the one in force, in the tenant's currency; a change does not affect past hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from billing import selectors, services
from billing.models import Plan, Price, PriceComponent
from tenants.models import Member, Tenant, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.billing import create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

DOLLARS = Decimal("0.0700")
INLINE = {"prices-INITIAL_FORMS": "1", "prices-MIN_NUM_FORMS": "0", "prices-TOTAL_FORMS": "2"}


@pytest.fixture(autouse=True)
def brook() -> Plan:
    services.ensure_default_plans()
    return Plan.objects.get(code="brook")


@pytest.fixture()
def american(brook: Plan) -> Member:
    """The owner of a tenant that pays in dollars; Brook has a price in dollars, newer than the one in euros."""
    Price.objects.create(
        plan=brook, currency="USD", effective_from=timezone.now() - timedelta(minutes=1), base_per_hour=DOLLARS,
        per_mb_s_hour=Decimal("0.01"), per_gb_hour=Decimal("0.0003"),
    )  # fmt: skip
    owner = make_member()
    Tenant.objects.filter(pk=owner.tenant_id).update(currency="USD")
    return owner


def browse(member: Member) -> Client:
    client = Client()
    client.force_login(member.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def test_each_tenant_sees_the_price_in_its_own_currency(american: Member) -> None:
    for owner, currency, base in ((american, "USD", "0.0700"), (make_member(), "EUR", "0.0600")):
        caller = Api.of(owner)
        quoted = caller.get("/prices:quote?plan=brook").json()
        assert (quoted["currency"], quoted["per_hour"]) == (currency, base)
        listed = caller.get("/plans").json()["items"][0]["price"]
        assert (listed["currency"], listed["base_per_hour"]) == (currency, base)


def test_a_plan_without_a_price_in_the_tenants_currency_is_not_offered(american: Member) -> None:
    caller = Api.of(american)
    assert_problem(caller.get("/prices:quote?plan=stream"), 404, "no_price")
    assert [plan["price"] is None for plan in caller.get("/plans").json()["items"]] == [False]


def test_the_smallest_plan_that_fits_is_quoted_of_those_with_a_price_in_the_tenants_currency(american: Member) -> None:
    """Stream would be the smallest one, but has none in dollars; instances are created by the same choice."""
    Price.objects.create(
        plan_id="river", currency="USD", effective_from=timezone.now() - timedelta(minutes=1),
        base_per_hour=Decimal("0.6"), per_mb_s_hour=Decimal("0.007"), per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    quoted = Api.of(american).get("/prices:quote?bandwidth_mb_s=60").json()
    assert (quoted["plan"], quoted["currency"], quoted["per_hour"]) == ("river", "USD", "0.6000")


def test_listing_plans_asks_for_all_their_prices_at_once(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    caller = Api.of(make_member())
    caller.get("/plans")
    with django_assert_max_num_queries(4):
        caller.get("/plans")


def test_the_usage_of_an_account_takes_as_many_queries_for_ten_instances_as_for_one(
    american: Member, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    page = browse(american)
    minute = timezone.now().astimezone(UTC).replace(second=0, microsecond=0)

    def use(name: str) -> None:
        instance = make_instance(american.tenant, name=name)
        create_usage(instance.pk, minute, produce=1_000)

    use("first")
    with django_assert_max_num_queries(40) as item:
        page.get(reverse("page-account-usage"))
    for number in range(9):
        use(f"other-{number}")
    with django_assert_max_num_queries(len(item)):
        message = page.get(reverse("page-account-usage")).content.decode()
    assert "10,000 B" in message
    assert "0.7000" in message


def test_the_price_in_force_follows_the_clock_within_one_currency(american: Member, brook: Plan) -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    for currency, base in (("EUR", Decimal("0.0600")), ("USD", None)):
        price = selectors.price_at(brook, currency, then)
        assert (price.base_per_hour if price else None) == base


# --- the operator panel -----------------------------------------------------------------------------------------------


def add(brook: Plan, at: datetime, currency: str = "EUR", **more: str) -> str:
    """Returns the panel's answer to a new price that begins at `at`."""
    panel = Client()
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    held = {"prices-0-id": str(brook.prices.get().pk), "prices-0-plan": "brook"}
    wanted = {
        "prices-1-plan": "brook", "prices-1-effective_from_0": f"{at:%Y-%m-%d}",
        "prices-1-effective_from_1": f"{at:%H:%M:%S}", "prices-1-currency": currency,
        "prices-1-base_per_hour": "0.0900", "prices-1-per_mb_s_hour": "0.0100", "prices-1-per_gb_hour": "0.000300",
    }  # fmt: skip
    body = {
        "name": brook.name,
        "position": "0",
        "idle_stop_days": "0",
        "on_sale": "on",
        **INLINE,
        **held,
        **wanted,
        **more,
    }
    return panel.post(reverse("admin:billing_plan_change", args=["brook"]), body).content.decode()


def test_a_price_that_would_change_hours_that_have_passed_is_refused(brook: Plan) -> None:
    assert "Hours that have passed" in add(brook, timezone.now() - timedelta(hours=1))
    assert brook.prices.count() == 1


def test_the_next_price_and_the_first_one_of_a_currency_are_taken(brook: Plan) -> None:
    add(brook, timezone.now() + timedelta(days=1))
    assert brook.prices.count() == 2


def test_the_first_price_in_a_currency_may_have_begun_and_is_kept_in_capitals(brook: Plan) -> None:
    add(brook, timezone.now() - timedelta(minutes=1), "usd")
    assert brook.prices.filter(currency="USD").count() == 1


def test_a_currency_that_is_none_is_refused(brook: Plan) -> None:
    assert "three letters" in add(brook, timezone.now() + timedelta(days=1), "€")


@pytest.mark.parametrize("name", ["base_per_hour", "per_mb_s_hour", "per_gb_hour"])
def test_a_price_below_zero_is_refused(brook: Plan, name: str) -> None:
    answer = add(brook, timezone.now() + timedelta(days=1), **{f"prices-1-{name}": "-0.0100"})
    assert "A price is not negative." in answer and brook.prices.count() == 1


def test_an_overage_price_below_zero_is_refused(brook: Plan) -> None:
    price = Price.objects.create(
        plan=brook, effective_from=timezone.now() + timedelta(days=1), base_per_hour=1, per_mb_s_hour=1, per_gb_hour=1
    )
    component = PriceComponent(
        price=price, meter="bytes_in", tiers=[[None, "1", "0"]], commit=5, overage_price=Decimal("-0.01")
    )
    with pytest.raises(ValidationError, match="not negative"):
        component.full_clean()


def test_the_panel_shows_the_price_in_force_of_each_currency(american: Member) -> None:
    panel = Client()
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    message = panel.get(reverse("admin:billing_plan_changelist")).content.decode()
    assert "0.0600 EUR, 0.0700 USD" in message
