"""Budgets and their alerts over REST and in the console, mailed once to members who may see costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing import services as plans
from billing.budgets import services
from billing.invoices.periods import month_of
from billing.models import Budget
from notifications import outbox
from notifications.alerts import mailing
from notifications.budgets import alerts as budget_alerts
from notifications.models import BudgetAlert
from tenants.actors import member_actor
from tenants.choices import Role, Scope
from tenants.models import Member, User
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.billing import create_operations
from tests.testkit.instances import make_instance

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

MONTH = month_of(datetime(2026, 3, 15, tzinfo=UTC))


@pytest.fixture(autouse=True)
def prices() -> None:
    plans.ensure_default_plans()


@pytest.fixture()
def owner() -> Member:
    """An owner with a verified address and an instance that costs 0.06 an hour all of March."""
    member = make_member()
    User.objects.filter(pk=member.user_id).update(email_verified_at=timezone.now())
    create_operations(make_instance(member.tenant, name="orders"), MONTH.start)
    return member


def budget(owner: Member, amount: str, **more: str) -> Budget:
    return services.create_budget(acting=member_actor(owner), name="March", amount=Decimal(amount), **more)


def evaluate(now: datetime) -> int:
    """Evaluates budgets, sends the resulting mail, and returns the number of new alerts."""
    made = services.evaluate(now)
    outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=mailing.send)
    return made


def after(hours: int) -> datetime:
    return MONTH.start + timedelta(hours=hours)


class TestEndpointsOfBudgets(EndpointCases):
    cases = (
        Case("GET", "/budgets", Scope.BILLING_READ),
        Case("POST", "/budgets", Scope.BILLING_WRITE, body={"name": "all", "amount": "100.00"}, status=201),
        Case("GET", "/budgets/{budget}", Scope.BILLING_READ),
        Case("PATCH", "/budgets/{budget}", Scope.BILLING_WRITE, body={"amount": "7.00"}),
        Case("DELETE", "/budgets/{budget}", Scope.BILLING_WRITE, status=204),
        Case("GET", "/alerts", Scope.BILLING_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        return {"budget": budget(owner, "5").pk}


def test_each_mark_is_said_once_and_the_highest_gets_the_mail(owner: Member) -> None:
    budget(owner, "6.00")

    said = [evaluate(after(hours)) for hours in (10, 10, 50, 79, 81, 99, 100, 200)]

    assert said == [1, 0, 1, 0, 1, 0, 1, 0]
    assert [alert.mark for alert in BudgetAlert.objects.order_by("at")] == [0, 50, 80, 100]
    assert [message.subject for message in mail.outbox] == [
        "[Penstock] Budget March: the forecast exceeds it",
        "[Penstock] Budget March: 50 % spent",
        "[Penstock] Budget March: 80 % spent",
        "[Penstock] Budget March: 100 % spent",
    ]
    assert "€ 6.00" in mail.outbox[-1].body and "/budgets/" in mail.outbox[-1].body


def test_another_amount_says_its_marks_anew_and_so_does_another_month(owner: Member) -> None:
    found = budget(owner, "6.00")
    assert evaluate(after(120)) == 3
    services.change_budget(acting=member_actor(owner), budget=found, changes={"amount": Decimal("7.20")})
    assert evaluate(after(120)) == 3
    assert evaluate(MONTH.end + timedelta(hours=120)) == 3
    assert len(mail.outbox) == 3


def test_only_who_may_see_cost_at_a_verified_address_gets_a_mail(owner: Member) -> None:
    finance, developer = (make_member(role, owner.tenant) for role in (Role.FINANCE, Role.DEVELOPER))
    unverified = make_member(Role.ADMIN, owner.tenant)
    User.objects.filter(pk__in=[finance.user_id, developer.user_id]).update(email_verified_at=timezone.now())
    removed = make_member(Role.FINANCE, owner.tenant)
    User.objects.filter(pk=removed.user_id).update(email_verified_at=timezone.now())
    Member.objects.filter(pk=removed.pk).update(removed_at=timezone.now())
    budget(owner, "0.06")
    evaluate(after(1))
    assert {message.to[0] for message in mail.outbox} == {owner.user.email, finance.user.email}
    assert unverified.user.email not in str(mail.outbox)


def test_a_worker_that_dies_before_the_mail_of_a_budget_loses_it_not(owner: Member) -> None:
    budget(owner, "0.06")
    services.evaluate(after(1))
    assert not mail.outbox and BudgetAlert.objects.filter(sent_to=0).exists()
    evaluate(after(1))
    assert len(mail.outbox) == 1 and BudgetAlert.objects.get(mark=100).sent_to == 1


def test_a_budget_of_one_instance_counts_that_one_alone(owner: Member) -> None:
    small = make_instance(owner.tenant, name="small")
    create_operations(small, after(90))
    budget(owner, "3.00", instance_id=small.pk)
    assert services.evaluate(after(100)) == 1  # the forecast
    assert BudgetAlert.objects.get().spent == Decimal("0.60")


def test_a_plan_without_a_price_stops_no_other_tenants_budget(owner: Member) -> None:
    other = make_member()
    create_operations(make_instance(other.tenant, plan="ghost"), MONTH.start)
    budget(other, "0.01")
    budget(owner, "0.06")
    assert services.evaluate(after(1)) >= 1
    assert set(BudgetAlert.objects.values_list("tenant_id", flat=True)) == {owner.tenant_id}


def test_an_invalid_budget_is_refused_and_changes_nothing(owner: Member) -> None:
    caller = Api.of(owner)
    foreign = make_instance(make_member().tenant).pk
    for body, status, code in (
        ({"name": "a", "amount": "0"}, 400, "invalid_request"),
        ({"name": "a", "amount": "NaN"}, 400, "invalid_request"),
        ({"name": "a", "amount": "1e40"}, 400, "invalid_request"),
        ({"name": "", "amount": "1"}, 400, "invalid_request"),
        ({"name": "a", "amount": "1", "instance_id": foreign}, 400, "invalid_request"),
    ):
        assert_problem(caller.post("/budgets", body), status, code)
    assert caller.post("/budgets", {"name": "a", "amount": "1"}).status_code == 201
    assert_problem(caller.post("/budgets", {"name": "a", "amount": "2"}), 409, "name_taken")
    assert Budget.objects.count() == 1


def test_budgets_per_tenant_are_limited(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "BUDGETS_PER_TENANT_MAX", 2)
    caller = Api.of(owner)
    answers = [caller.post("/budgets", {"name": f"b{number}", "amount": "1"}) for number in range(3)]
    assert [answer.status_code for answer in answers[:2]] == [201, 201]
    assert answers[2].status_code >= 400


def test_another_tenants_budget_and_alerts_are_not_found(owner: Member) -> None:
    found = budget(owner, "0.06")
    services.evaluate(after(1))
    stranger = Api.of(make_member())
    assert_problem(stranger.get(f"/budgets/{found.pk}"), 404, "not_found")
    assert_problem(stranger.patch(f"/budgets/{found.pk}", {"amount": "1"}), 404, "not_found")
    assert_problem(stranger.delete(f"/budgets/{found.pk}"), 404, "not_found")
    assert stranger.get("/alerts").json()["items"] == stranger.get("/budgets").json()["items"] == []


def browse(member: Member) -> Client:
    client = Client()
    client.force_login(member.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture()
def page_of() -> Callable[[Client], str]:
    return lambda client: client.get(reverse("page-budgets")).content.decode()


def test_a_budget_is_added_watched_and_deleted_in_the_console(owner: Member, page_of: Callable[[Client], str]) -> None:
    client = browse(owner)
    assert "No budget yet" in page_of(client)
    form = {"name": "All of it", "amount": "40", "instance_id": "", "in_tenant": owner.tenant_id}
    assert client.post(reverse("page-budgets"), form).status_code == 302
    assert "All of it" in page_of(client)

    refused = client.post(reverse("page-budgets"), form | {"amount": "-1"})
    assert refused.status_code == 422 and Budget.objects.count() == 1

    client.post(reverse("page-budget-delete", args=[Budget.objects.get().pk]), {"confirmed": "yes"})
    assert not Budget.objects.exists()


def test_a_budget_is_changed_in_the_console(owner: Member, page_of: Callable[[Client], str]) -> None:
    client, found = browse(owner), budget(owner, "40")
    at = reverse("page-budget", args=[found.pk])
    assert at in page_of(client)
    assert 'value="40.00"' in client.get(at).content.decode()
    assert client.post(at, {"name": "March", "amount": "0"}).status_code == 422
    assert client.post(at, {"name": "Spring", "amount": "41.5"}).status_code == 302
    found.refresh_from_db()
    assert (found.name, found.amount) == ("Spring", Decimal("41.5"))
    services.create_budget(acting=member_actor(owner), name="Summer", amount=Decimal(9))
    assert client.post(at, {"name": "Summer", "amount": "41.5"}).status_code == 422, "the name is taken"


def test_another_tenants_budget_is_not_changed_in_the_console_nor_by_who_may_not(owner: Member) -> None:
    at = reverse("page-budget", args=[budget(owner, "5").pk])
    for caller, status in ((make_member(), 404), (make_member(Role.DEVELOPER, owner.tenant), 403)):
        assert browse(caller).get(at).status_code == status
        assert browse(caller).post(at, {"name": "Mine", "amount": "1"}).status_code == status
    assert Budget.objects.get().name == "March"


def test_another_tenants_budget_is_not_deleted_in_the_console(owner: Member) -> None:
    found = budget(owner, "5")
    assert browse(make_member()).post(reverse("page-budget-delete", args=[found.pk])).status_code == 404
    assert Budget.objects.filter(pk=found.pk).exists()
