"""/costs and /invoices: guarantees of the API, sums that agree with the bill, and isolation by tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from billing import call_limits, services
from billing.invoices import issuing
from billing.invoices.periods import month_before, month_of
from billing.models import BillingProfile, Invoice, Price, PriceComponent, Seller, UsageMinute
from tenants.actors import system_actor
from tenants.choices import Role, Scope
from tenants.models import Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
THIS_MONTH = month_of(NOW)
LAST_MONTH = month_before(THIS_MONTH)
GB = 10**9


@pytest.fixture(autouse=True)
def prices() -> None:
    """The default plans; a gigabyte into the smallest one costs two cents."""
    services.ensure_default_plans()
    price = Price.objects.create(
        plan_id="brook", effective_from=LAST_MONTH.start, base_per_hour=Decimal("0.06"),
        per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.0002"),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="bytes_in", tiers=[[None, "0.02", "0"]])


def with_traffic(owner: Member) -> str:
    """An instance since the begin of last month: 100 GB in its second hour, three quarters by one topic."""
    instance = make_instance(owner.tenant, name="orders")
    create_operations(instance, LAST_MONTH.start)
    hour = LAST_MONTH.start + timedelta(hours=1)
    create_usage(instance.pk, hour, produce=75 * GB, topic="clicks", client_id="web")
    create_usage(instance.pk, hour + timedelta(minutes=1), produce=25 * GB, topic="orders", client_id="=cmd()")
    return instance.pk


def invoice_of(owner: Member) -> Invoice:
    invoice = issuing.issue(acting=system_actor("test"), tenant=owner.tenant, period=LAST_MONTH, now=NOW)
    assert invoice is not None
    return invoice


class TestEndpointsOfInvoices(EndpointCases):
    cases = (
        Case("GET", "/costs", Scope.BILLING_READ),
        Case("GET", "/invoices", Scope.BILLING_READ),
        Case("GET", "/invoices/draft", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/pdf", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/xml", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/lines", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/lines/{line}/hours", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/lines/{line}/minutes?hour=2026-01-01T00:00:00Z", Scope.BILLING_READ),
        Case("GET", "/invoices/{invoice}/recompute", Scope.BILLING_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        with_traffic(owner)
        Seller.objects.create(country="DE", tax_id="DE123456789")
        BillingProfile.objects.create(tenant=owner.tenant, country="FR")
        return {"invoice": invoice_of(owner).pk, "line": "1"}


@pytest.fixture()
def owner() -> Member:
    return make_member()


def last_month(group_by: str) -> str:
    start, end = (f"{instant:%Y-%m-%dT%H:%M:%SZ}" for instant in (LAST_MONTH.start, LAST_MONTH.end))
    return f"/costs?start={start}&end={end}&group_by={group_by}"


@pytest.mark.parametrize("group_by", ["instance", "day", "topic", "user", "client_id"])
def test_costs_sum_to_the_invoice_however_they_are_grouped(owner: Member, group_by: str) -> None:
    with_traffic(owner)
    issued = invoice_of(owner)

    found = Api.of(owner).get(last_month(group_by) + "&page_size=100").json()

    assert found["total"] == str(issued.subtotal)
    assert sum(Decimal(item["amount"]) for item in found["items"]) == issued.subtotal
    assert sum(item["bytes"] for item in found["items"]) == 100 * GB


def test_a_topic_bears_the_share_of_its_bytes_and_it_is_said_to_be_an_allocation(owner: Member) -> None:
    with_traffic(owner)
    items = Api.of(owner).get(last_month("topic")).json()["items"]
    total = sum(Decimal(item["amount"]) for item in items)
    assert [(item["key"], item["is_allocated"]) for item in items] == [("clicks", True), ("orders", True)]
    assert abs(Decimal(items[0]["amount"]) - total * 3 / 4) <= Decimal("0.01")


def test_an_instance_that_moved_nothing_still_costs(owner: Member) -> None:
    create_operations(make_instance(owner.tenant), LAST_MONTH.start)
    (item,) = Api.of(owner).get(last_month("topic")).json()["items"]
    assert (item["key"], item["is_allocated"], item["bytes"]) == ("(not used)", False, 0)


def test_a_month_costs_as_many_queries_for_twenty_instances_as_for_one(
    owner: Member, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    caller = Api.of(owner)
    for _ in range(20):
        with_traffic_named(owner)
    caller.get("/costs")
    with django_assert_max_num_queries(14):
        assert len(caller.get("/costs?page_size=100").json()["items"]) == 20


def with_traffic_named(owner: Member) -> None:
    instance = make_instance(owner.tenant)
    create_operations(instance, LAST_MONTH.start)
    create_usage(instance.pk, NOW.replace(second=0, microsecond=0), produce=GB)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("start=2026-01-01T00:00:00Z&end=2026-12-31T00:00:00Z", "span_too_long"),
        ("start=2026-02-01T00:00:00Z&end=2026-01-01T00:00:00Z", "invalid_span"),
        ("group_by=tenant", "invalid_choice"),
    ],
)
def test_a_span_that_cannot_be_is_refused_in_words(owner: Member, query: str, code: str) -> None:
    problem = assert_problem(Api.of(owner).get(f"/costs?{query}"), 400, "invalid_request")
    assert problem["errors"][0]["code"] == code


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("end=0001-01-01T00:00:00Z", 400),
        ("end=9999-12-31T23:59:59Z", 400),
        ("start=9999-12-31T23:00:00Z&end=9999-12-31T23:59:59Z", 400),
        ("start=9999-12-01T00:00:00Z&end=9999-12-31T00:00:00Z&group_by=day", 400),
        ("start=0001-01-01T00:00:00Z&end=0001-01-31T00:00:00Z&group_by=day", 200),
        ("start=0001-01-01T00:00:00%2B14:00&end=0001-01-31T00:00:00Z", 400),
    ],
)
def test_a_span_at_the_edge_of_the_calendar_is_an_answer_and_never_a_crash(
    owner: Member, query: str, status: int
) -> None:
    with_traffic(owner)
    assert Api.of(owner).get(f"/costs?{query}").status_code == status


def test_the_draft_is_this_month_so_far_and_its_forecast_is_no_less(owner: Member) -> None:
    with_traffic(owner)
    found = Api.of(owner).get("/invoices/draft").json()
    assert found["period_start"] == f"{THIS_MONTH.start:%Y-%m-%dT%H:%M:%SZ}"
    assert Decimal(found["total"]) == sum(Decimal(line["amount"]) for line in found["lines"])
    assert Decimal(found["forecast"]) >= Decimal(found["total"]) > 0


def test_an_instance_of_this_hour_has_a_cost_at_once(owner: Member) -> None:
    create_operations(make_instance(owner.tenant), datetime.now(UTC))
    # Two hours when the clock strikes in between.
    assert Api.of(owner).get("/invoices/draft").json()["total"] in ("0.06", "0.12")


def test_a_line_opens_to_hours_and_an_hour_to_minutes(owner: Member) -> None:
    instance_id = with_traffic(owner)
    caller, at = Api.of(owner), f"/invoices/{invoice_of(owner).pk}/lines"
    lines = caller.get(at).json()["items"]
    assert [(line["meter"], line["instance_id"]) for line in lines] == [
        ("instance", instance_id),
        ("bytes_in", instance_id),
    ]

    hours = caller.get(f"{at}/2/hours").json()["items"]
    hour = next(each for each in hours if each["bytes_in"])
    with override_settings(USAGE_MINUTES_KEPT_DAYS=70):
        minutes = caller.get(f"{at}/2/minutes?hour={hour['hour']}").json()["items"]
    with override_settings(USAGE_MINUTES_KEPT_DAYS=0):
        gone = assert_problem(caller.get(f"{at}/2/minutes?hour={hour['hour']}"), 400, "invalid_request")

    assert [(each["parameter"], each["code"]) for each in gone["errors"]] == [("hour", "minutes_not_kept")]
    assert hour["bytes_in"] == 100 * GB and hour["sizes"][0]["plan"] == "brook"
    assert [(each["topic"], each["bytes"]) for each in minutes] == [("clicks", 75 * GB), ("orders", 25 * GB)]
    assert caller.get(f"{at}/99/hours").status_code == 404
    assert caller.get(f"{at}/99999999999999999999/hours").status_code == 404


def test_pages_of_minutes_reach_the_last_one_of_an_hour_of_very_many_clients(owner: Member) -> None:
    instance_id = with_traffic(owner)
    caller, at = Api.of(owner), f"/invoices/{invoice_of(owner).pk}/lines/2/minutes"
    hour, clients = LAST_MONTH.start + timedelta(hours=1), 35
    UsageMinute.objects.filter(instance_id=instance_id).delete()
    UsageMinute.objects.bulk_create(
        UsageMinute(
            instance_id=instance_id, minute=hour + timedelta(minutes=minute), topic="t", user="\U0001f511" * 255,
            client_id=f"{number:03d}" + "\U0001f511" * 252, direction="produce", bytes=1, requests=1,
        )
        for number in range(clients)
        for minute in range(60)
    )  # fmt: skip
    seen: list[tuple[str, str]] = []
    token = ""
    with override_settings(USAGE_MINUTES_KEPT_DAYS=70):
        while True:
            page = caller.get(f"{at}?hour={hour:%Y-%m-%dT%H:%M:%SZ}&page_size=200" + (token and f"&page_token={token}"))
            seen += [(row["minute"], row["client_id"]) for row in page.json()["items"]]
            token = page.json()["next_page_token"]
            if token is None:
                break
    assert len(seen) == len(set(seen)) == 60 * clients
    assert [minute for minute, _ in seen] == sorted(minute for minute, _ in seen)


def test_an_invoice_comes_out_again_to_the_cent_and_late_usage_is_named(owner: Member) -> None:
    instance_id = with_traffic(owner)
    caller, at = Api.of(owner), f"/invoices/{invoice_of(owner).pk}/recompute"
    assert caller.get(at).json()["is_equal"] is True

    create_usage(instance_id, LAST_MONTH.start + timedelta(hours=3), produce=50 * GB)

    found = caller.get(at).json()
    assert found["is_equal"] is False
    differences = [
        tuple(each[name] for name in ("source", "meter", "invoiced", "recomputed")) for each in found["differences"]
    ]
    assert differences == [("usage", "bytes_in", "2.00", "3.00")]


def test_working_invoices_out_again_and_again_is_limited_for_the_tenant(owner: Member, redis_url: str) -> None:
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=True):
        _work_out_until_refused(owner)


def _work_out_until_refused(owner: Member) -> None:
    with_traffic(owner)
    caller, at = Api.of(owner), f"/invoices/{invoice_of(owner).pk}/recompute"
    answers = [caller.get(at) for _ in range(call_limits.RECOMPUTATIONS_PER_MINUTE_MAX + 1)]
    assert [answer.status_code for answer in answers[:-1]] == [200] * call_limits.RECOMPUTATIONS_PER_MINUTE_MAX
    assert_problem(answers[-1], 429, "rate_limited")
    other = make_member()
    with_traffic(other)
    assert Api.of(other).get(f"/invoices/{invoice_of(other).pk}/recompute").status_code == 200


def test_computations_of_costs_are_limited_per_minute(
    owner: Member, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "COSTS_PER_MINUTE_MAX", 2)
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=True):
        answers = [Api.of(owner).get("/costs") for _ in range(3)]
        other = Api.of(make_member()).get("/costs")
        console = Client()
        console.force_login(owner.user)
        page, file = (console.get(reverse(name)) for name in ("page-account-usage", "page-costs-csv"))
    assert [answer.status_code for answer in [*answers, other]] == [200, 200, 429, 200]
    # A file without rows would say that nothing costs anything.
    assert (page.status_code, file.status_code, file["Content-Type"]) == (200, 429, "text/plain; charset=utf-8")


def test_another_tenants_invoice_is_not_found_whatever_is_asked_of_it(owner: Member) -> None:
    with_traffic(owner)
    issued = invoice_of(owner)
    stranger = Api.of(make_member())
    lines = ("/lines", "/lines/1/hours", "/lines/1/minutes?hour=2026-01-01T00:00:00Z")
    for rest in ("", "/pdf", "/xml", *lines, "/recompute"):
        assert_problem(stranger.get(f"/invoices/{issued.pk}{rest}"), 404, "not_found")
    assert stranger.get("/invoices").json()["items"] == []


@pytest.mark.parametrize(("role", "status"), [(Role.FINANCE, 200), (Role.VIEWER, 403), (Role.DEVELOPER, 403)])
def test_finance_sees_invoices_and_developers_do_not(owner: Member, role: Role, status: int) -> None:
    member: Any = make_member(role, owner.tenant)
    assert Api.of(member).get("/invoices").status_code == status
