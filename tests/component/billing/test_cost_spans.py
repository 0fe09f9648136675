"""Costs of any span: days sum to months, and months to invoices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing import costs, services
from billing.invoices import issuing
from billing.invoices.charging import draft
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.invoices.snapshot import from_json
from billing.models import BillingProfile, Discount, Price, PriceComponent
from billing.rating.terms import Period
from tenants.actors import system_actor
from tenants.models import Member
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

GB = 10**9
DAY = timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


JANUARY, FEBRUARY = month_of(utc("2026-01-05")), month_of(utc("2026-02-05"))
NOW = utc("2026-03-11T10:20")


@pytest.fixture(autouse=True)
def prices() -> None:
    services.ensure_default_plans()
    price(JANUARY.start + timedelta(hours=1), commit="300", included="100")


def price(since: datetime, **terms: str) -> None:
    new = Price.objects.create(
        plan_id="brook", effective_from=since, base_per_hour=Decimal("0.0123"), per_mb_s_hour=Decimal("0.009"),
        per_gb_hour=Decimal("0.000207"),
    )  # fmt: skip
    of: dict[str, Any] = {name: Decimal(value) for name, value in terms.items()}
    PriceComponent.objects.create(price=new, meter="bytes_in", tiers=[["50", "0.05", "1"], [None, "0.03", "0"]], **of)
    PriceComponent.objects.create(price=new, meter="bandwidth_p95", tiers=[[None, "7.77", "0"]])


@pytest.fixture()
def owner() -> Member:
    """An owner with two instances, one of half a month, a discount and a minimum."""
    owner = make_member()
    first = make_instance(owner.tenant, name="orders", bandwidth_mb_s=9, storage_gb=70)
    create_operations(first, JANUARY.start)
    second = make_instance(owner.tenant, name="clicks")
    create_operations(second, utc("2026-01-20T07:31"), utc("2026-02-14T03:14"))
    for number in range(50):
        create_usage(first.pk, JANUARY.start + timedelta(hours=31 * number, minutes=5), produce=(number * 7 % 13) * GB)
        create_usage(second.pk, utc("2026-01-21") + timedelta(hours=11 * number), produce=number * GB)
    Discount.objects.create(tenant=owner.tenant, code="TEN", percent=Decimal(10), amount=Decimal(2))
    BillingProfile.objects.create(tenant=owner.tenant, minimum=Decimal(60))
    return owner


def issued(owner: Member, period: Period) -> Any:
    return issuing.issue(acting=system_actor("test"), tenant=owner.tenant, period=period, now=NOW)


@pytest.mark.parametrize("is_issued", [False, True])
@pytest.mark.parametrize("group_by", ["instance", "day"])
def test_costs_of_two_months_are_the_sum_of_their_invoices(owner: Member, group_by: Any, is_issued: bool) -> None:
    invoices = [issued(owner, month) for month in (JANUARY, FEBRUARY)] if is_issued else []
    found = costs.costs(owner.tenant, JANUARY.start, FEBRUARY.end, group_by, NOW)
    invoices = invoices or [issued(owner, month) for month in (JANUARY, FEBRUARY)]

    assert found.total == sum(each.subtotal for each in invoices) > 0
    assert sum(row.amount for row in found.rows) == found.total


@pytest.mark.parametrize("length", [DAY, timedelta(hours=7), timedelta(days=20)])
def test_costs_of_any_split_sum_to_the_whole(owner: Member, length: timedelta) -> None:
    start, end = utc("2026-01-17T05:00"), utc("2026-02-09T16:00")
    whole = costs.costs(owner.tenant, start, end, "instance", NOW)
    total, by_instance, at = Decimal(0), dict.fromkeys((row.key for row in whole.rows), Decimal(0)), start
    while at < end:
        part = costs.costs(owner.tenant, at, min(at + length, end), "instance", NOW)
        total += part.total
        for row in part.rows:
            by_instance[row.key] = by_instance.get(row.key, Decimal(0)) + row.amount
        at += length

    assert total == whole.total
    assert by_instance == {row.key: row.amount for row in whole.rows}


def test_days_of_the_month_that_runs_sum_to_its_draft(owner: Member) -> None:
    march = month_of(NOW)
    so_far = draft(owner.tenant, NOW).so_far
    days = [
        costs.costs(owner.tenant, march.start + n * DAY, march.start + (n + 1) * DAY, "topic", NOW) for n in range(11)
    ]
    assert sum(day.total for day in days) == so_far.subtotal > 0
    assert days[0].total > 0


def test_late_usage_costs_the_month_that_it_was_used_in(owner: Member) -> None:
    before = issued(owner, JANUARY)
    instance_id = before.lines.exclude(instance_id="").first().instance_id
    create_usage(instance_id, JANUARY.start + timedelta(hours=3), produce=1_000 * GB)
    found = costs.costs(owner.tenant, JANUARY.start, JANUARY.end, "instance", NOW)
    after = issued(owner, FEBRUARY)
    late = sum(line.amount for line in after.lines.filter(kind="adjustment"))
    assert found.total == before.subtotal + late


def test_an_issued_invoice_comes_out_again_to_the_cent(owner: Member) -> None:
    for month in (JANUARY, FEBRUARY):
        found = issued(owner, month)
        assert from_json(found.inputs).version == 3
        assert recompute(found).is_equal


def test_lines_say_how_many_hours_of_the_month_their_terms_are_for(owner: Member) -> None:
    lines = issued(owner, JANUARY).lines
    hours = {line.hours for line in lines.filter(meter__in=("bytes_in", "bandwidth_p95"))}
    # 1 January 01:00 until the end, and 20 January 07:00 until the end.
    assert hours == {743, 281}
    assert set(lines.filter(meter="instance").values_list("hours", flat=True)) == {None}


@pytest.mark.parametrize("zone", ["+05:30", "+12:45", "-03:30"])
def test_days_of_a_zone_that_is_no_full_hour_off_sum_to_the_whole(owner: Member, zone: str) -> None:
    start = datetime.fromisoformat(f"2026-01-17T00:00:00{zone}")
    days = [costs.costs(owner.tenant, start + n * DAY, start + (n + 1) * DAY, "instance", NOW) for n in range(20)]
    whole = costs.costs(owner.tenant, start, start + 20 * DAY, "instance", NOW)
    assert sum(day.total for day in days) == whole.total > 0
    assert {day.hours for day in days} == {24}
    assert sum(row.hours or 0 for day in days for row in day.rows) == sum(row.hours or 0 for row in whole.rows)


def test_a_span_inside_an_hour_is_the_hour_that_begins_in_it_or_nothing(owner: Member) -> None:
    hour = costs.costs(owner.tenant, utc("2026-01-05T10:59"), utc("2026-01-05T11:01"), "instance", NOW)
    nothing = costs.costs(owner.tenant, utc("2026-01-05T10:10"), utc("2026-01-05T10:50"), "day", NOW)
    assert (hour.hours, hour.period.start) == (1, utc("2026-01-05T11:00")) and hour.total > 0
    assert (nothing.hours, nothing.total) == (0, 0)


def test_months_before_a_minimum_was_agreed_cost_what_was_used(owner: Member) -> None:
    """Invoices of these months are without it, too."""
    BillingProfile.objects.update(minimum=Decimal(900), minimum_from=utc("2026-03-01").date())
    assert costs.costs(owner.tenant, utc("2025-10-01"), utc("2025-12-01"), "day", NOW).total == 0
    january, february = (costs.costs(owner.tenant, month.start, month.end, "day", NOW) for month in (JANUARY, FEBRUARY))
    assert (january.total, february.total) == tuple(issued(owner, month).subtotal for month in (JANUARY, FEBRUARY))
    assert draft(owner.tenant, NOW).forecast.subtotal == 900
    BillingProfile.objects.update(minimum_from=utc("2026-04-01").date())
    assert draft(owner.tenant, NOW).forecast.subtotal < 900
