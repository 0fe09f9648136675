"""Coupons over REST and in the console: redeemed once by each tenant, by a limited number of tenants."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connections
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from billing import call_limits, coupons
from billing import services as plans
from billing.invoices.charging import draft
from billing.invoices.periods import month_of
from billing.models import Coupon, Discount
from billing.models.coupons import new_code
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.errors import DomainError
from tenants.models import AuditEntry, Member, User
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.billing import create_operations
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

MARCH = month_of(datetime(2026, 3, 15, tzinfo=UTC))
NOVEMBER = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
LONGEST = "A" * 32


@pytest.fixture(autouse=True)
def prices() -> None:
    plans.ensure_default_plans()


@pytest.fixture()
def owner() -> Member:
    return make_member()


def coupon(code: str = "WELCOME-1", **more: Any) -> Coupon:
    return Coupon.objects.create(code=code, **({"percent": Decimal(50)} | more))


def redeem(member: Member, code: str = "WELCOME-1", now: datetime = MARCH.start) -> Discount:
    return coupons.redeem(acting=member_actor(member), code=code, now=now)


class TestEndpointsOfDiscounts(EndpointCases):
    cases = (
        Case("GET", "/discounts", Scope.BILLING_READ),
        Case("POST", "/discounts", Scope.BILLING_WRITE, body={"code": "WELCOME-1"}, status=201),
    )

    def places(self, owner: Member) -> dict[str, str]:
        coupon()
        return {}


def test_a_redeemed_coupon_is_off_the_bill_of_as_many_months_as_it_says(owner: Member) -> None:
    create_operations(make_instance(owner.tenant, name="orders"), MARCH.start)
    coupon(months=2)
    before = draft(owner.tenant, MARCH.end - timedelta(hours=1)).so_far.subtotal
    found = redeem(owner, " welcome-1 ", MARCH.end - timedelta(hours=1))

    assert (found.starts_at, found.ends_at) == (MARCH.start, datetime(2026, 5, 1, tzinfo=UTC))
    after = [draft(owner.tenant, datetime(2026, month, 31 if month == 3 else 30, 23, tzinfo=UTC)) for month in (3, 4)]
    assert 0 < after[0].so_far.subtotal <= before / 2 + Decimal("0.01")
    assert [line.kind for line in after[1].so_far.lines].count("discount") == 1
    in_may = draft(owner.tenant, datetime(2026, 5, 2, tzinfo=UTC)).so_far
    assert "discount" not in {line.kind for line in in_may.lines}


@pytest.mark.parametrize(
    ("months", "end"), [(1, (2026, 12)), (2, (2027, 1)), (13, (2027, 12)), (14, (2028, 1)), (36, (2029, 11))]
)
def test_months_end_where_the_calendar_says(owner: Member, months: int, end: tuple[int, int]) -> None:
    coupon(months=months)
    assert redeem(owner, now=NOVEMBER).ends_at == datetime(*end, 1, tzinfo=UTC)


def test_a_code_is_redeemed_once_by_a_tenant_and_by_no_more_tenants_than_may(owner: Member) -> None:
    coupon(redemptions_max=2)
    one, two, three = Api.of(owner), Api.of(make_member()), Api.of(make_member())
    assert one.post("/discounts", {"code": "welcome-1"}).json()["percent"] == "50.00"
    assert_problem(one.post("/discounts", {"code": "WELCOME-1"}), 409, "already_redeemed")
    assert two.post("/discounts", {"code": "WELCOME-1"}).status_code == 201
    problem = assert_problem(three.post("/discounts", {"code": "WELCOME-1"}), 400, "invalid_request")
    assert problem["errors"][0]["code"] == "not_valid"
    assert [item["code"] for item in one.get("/discounts").json()["items"]] == ["WELCOME-1"]
    assert three.get("/discounts").json()["items"] == []


def test_another_code_of_the_same_coupon_is_not_redeemed_a_second_time(owner: Member) -> None:
    made = coupon(redemptions_max=5)
    redeem(owner)
    Coupon.objects.filter(pk=made.pk).update(code="WELCOME-2")
    assert_problem(Api.of(owner).post("/discounts", {"code": "WELCOME-2"}), 409, "already_redeemed")
    assert redeem(make_member(), "WELCOME-2").coupon == made


def test_every_unusable_code_gets_the_same_refusal(owner: Member) -> None:
    coupon("OVER-2026", redeemable_until=timezone.now() - timedelta(seconds=1))
    coupon("TAKEN-2026")
    redeem(make_member(), "TAKEN-2026")
    caller = Api.of(owner)
    answers = [
        assert_problem(caller.post("/discounts", {"code": code}), 400)["errors"]
        for code in ("OVER-2026", "TAKEN-2026", "NEVER-THERE", LONGEST, "ＷＥＬＣＯＭＥ")
    ]
    assert len({str(each) for each in answers}) == 1
    for body in (
        {"code": LONGEST + "A"},
        {"code": ""},
        {"code": ["WELCOME-1"]},
        {},
        {"code": "A" * 200_000},
        {"code": "\x00"},
    ):
        assert_problem(caller.post("/discounts", body), 400)
    assert not Discount.objects.filter(tenant=owner.tenant).exists()


def test_a_code_for_bills_in_another_currency_is_answered_like_an_unknown_one(owner: Member) -> None:
    coupon("DOLLARS-10", percent=0, amount=Decimal(10), currency="USD")
    known, unknown = (
        assert_problem(Api.of(owner).post("/discounts", {"code": code}), 400)["errors"]
        for code in ("DOLLARS-10", "DOLLARS-11")
    )
    assert known == unknown and not Discount.objects.exists()


def test_codes_are_tried_a_few_times_a_minute(owner: Member, redis_url: str) -> None:
    coupon()
    caller = Api.of(owner)
    with override_settings(REDIS_URL=redis_url, API_RATE_LIMITS=True):
        for number in range(call_limits.COUPONS_PER_MINUTE_MAX):
            assert_problem(caller.post("/discounts", {"code": f"GUESS-{number:04}"}), 400)
        refused = caller.post("/discounts", {"code": "WELCOME-1"})
        assert_problem(refused, 429, "rate_limited")
        assert 0 < int(refused["Retry-After"]) <= 60
        assert Api.of(make_member()).post("/discounts", {"code": "WELCOME-1"}).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_concurrent_tenants_never_exceed_the_redemption_limit() -> None:
    coupon(redemptions_max=3)
    members = [make_member() for _ in range(8)]

    def one(member: Member) -> bool:
        try:
            redeem(member)
        except DomainError:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, members)) == 3
    assert Discount.objects.count() == 3


def browse(member: Member) -> Client:
    client = Client()
    client.force_login(member.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def test_a_code_is_redeemed_in_the_console(owner: Member) -> None:
    coupon(amount=Decimal("7.50"), currency="EUR")
    client, page = browse(owner), reverse("page-invoices")
    assert "None is in force." in client.get(page).content.decode()
    form = {"code": "welcome-1", "in_tenant": owner.tenant_id}
    said = client.post(reverse("page-coupon-redeem"), form, follow=True).content.decode()
    assert "Code WELCOME-1 is redeemed." in said and "50 %" in said and "€ 7.50" in said
    assert (
        "This code is redeemed already."
        in client.post(reverse("page-coupon-redeem"), form, follow=True).content.decode()
    )
    entry = AuditEntry.objects.get(action="discount.redeemed")
    assert entry.tenant_id == owner.tenant_id and entry.after["code"] == "WELCOME-1"


def test_a_member_without_billing_rights_has_no_form_and_redeems_nothing(owner: Member) -> None:
    coupon()
    reader = make_member(Role.ADMIN, owner.tenant)
    client = browse(reader)
    assert "Redeem a code" not in client.get(reverse("page-invoices")).content.decode()
    assert client.post(reverse("page-coupon-redeem"), {"code": "WELCOME-1"}).status_code == 403
    assert client.get(reverse("page-coupon-redeem")).status_code in (403, 405)
    assert not Discount.objects.exists()


@pytest.mark.parametrize(
    "values",
    [
        {"percent": 0}, {"percent": 101}, {"percent": 0, "amount": 5}, {"amount": 5, "currency": "euro"}, {"months": 0},
        {"months": 37}, {"redemptions_max": 0}, {"code": "short"}, {"code": "lower-case"}, {"code": "WITH SPACE"},
    ],
)  # fmt: skip
def test_a_coupon_that_is_worth_nothing_or_cannot_be_typed_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Coupon(**({"code": "WELCOME-1", "percent": Decimal(10)} | values)).full_clean()


def test_made_up_codes_are_valid_and_differ() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    for code in codes:
        Coupon(code=code, percent=Decimal(10)).full_clean(validate_unique=False)


def test_an_operator_makes_a_coupon_and_sees_how_many_have_it(owner: Member) -> None:
    panel = Client()
    panel.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    body = {"code": "WELCOME-1", "percent": "10", "amount": "0", "currency": "", "months": "3", "redemptions_max": "5"}
    answer = panel.post(reverse("admin:billing_coupon_add"), body)
    assert answer.status_code == 302, answer.content.decode()
    assert AuditEntry.objects.filter(action="coupon.changed").exists()
    redeem(owner)
    page = panel.get(reverse("admin:billing_coupon_changelist")).content.decode()
    assert "WELCOME-1" in page
    assert re.search(r"field-redeemed[^>]*>\s*1\s*<", page)
