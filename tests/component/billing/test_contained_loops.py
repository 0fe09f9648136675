"""Tasks with one tenant whose values fail: all other tenants are still billed, warned and notified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.utils import timezone
from structlog.testing import capture_logs

from billing import services as plans
from billing.budgets import services as budgets
from billing.dunning import services as dunning
from billing.idle import services as idle
from billing.invoices import closing, issuing, printing
from billing.invoices.periods import month_before, month_of
from billing.models import ActionItem, Invoice, InvoiceReminder, Seller, UntakenMail
from brokers.models import Placement
from instances.metrics import storage_history
from instances.models import Instance
from notifications import outbox
from notifications.alerts import evaluating, firings, mailing
from notifications.alerts import services as rules
from notifications.budgets import alerts as budget_alerts
from notifications.models import AlertFiring, AlertRule, BudgetAlert, MailNotice
from tenants.actors import member_actor
from tenants.models import Member, Tenant, User
from tests.testkit.api_cases import make_member
from tests.testkit.billing import DUE, create_operations, invoice_of
from tests.testkit.fleet import make_fleet, make_running
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))


@pytest.fixture(autouse=True)
def _prices() -> None:
    cache.clear()
    plans.ensure_default_plans()


@pytest.fixture()
def members() -> list[Member]:
    """Owners with verified addresses; the first one, in the order of the tasks, has values that fail."""
    made = sorted((make_member() for _ in range(3)), key=lambda member: member.tenant_id)
    User.objects.update(email_verified_at=timezone.now())
    return made


def poison(function: Callable[..., Any], is_poisoned: Callable[..., bool]) -> Callable[..., Any]:
    """Returns a function that raises where a predicate holds for its arguments."""

    def poisoned(*arguments: Any, **named: Any) -> Any:
        if is_poisoned(*arguments, **named):
            raise OverflowError("date value out of range")
        return function(*arguments, **named)

    return poisoned


def events(written: Sequence[Any]) -> list[str]:
    return [line["event"] for line in written if line["log_level"] == "error"]


def test_budgets(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    for member in members:
        create_operations(make_instance(member.tenant), LAST_MONTH.start)
        budgets.create_budget(acting=member_actor(member), name="b", amount=Decimal("0.06"))
    monkeypatch.setattr(budgets, "draft", poison(budgets.draft, lambda tenant, _now: tenant == members[0].tenant))
    with capture_logs() as written:
        budgets.evaluate(LAST_MONTH.start + timedelta(hours=1))
    assert events(written) == ["budgets_failed"]
    alerted = set(BudgetAlert.objects.values_list("tenant_id", flat=True))
    assert alerted == {member.tenant_id for member in members[1:]}


def test_invoices(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    for member in members:
        create_operations(make_instance(member.tenant), LAST_MONTH.start)
    monkeypatch.setattr(issuing, "issue", poison(issuing.issue, lambda **named: named["tenant"] == members[0].tenant))
    with capture_logs() as written:
        done = closing.close_month(NOW)
    assert events(written) == ["invoice_failed"]
    assert done.waiting == {members[0].tenant.slug: closing.UNEXPECTED_FAILURE}
    assert done.issued == Invoice.objects.count() == 2


def test_reminders(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    Seller.objects.create(suspend_days=20)
    invoices = [invoice_of(member.tenant, f"PS-{number}") for number, member in enumerate(members)]
    is_first: Callable[..., bool] = lambda tenant, *_: tenant == members[0].tenant  # noqa: E731
    monkeypatch.setattr(dunning, "overdue_of", poison(dunning.overdue_of, is_first))
    with capture_logs() as written:
        dunning.dun(DUE + timedelta(days=3))
    assert events(written) == ["dunning_failed"]
    assert [(item.tenant, item.kind) for item in ActionItem.objects.all()] == [(members[0].tenant, "dunning")]
    reminded = InvoiceReminder.objects.values_list("invoice_id", flat=True)
    assert set(reminded) == {invoice.pk for invoice in invoices[1:]}


def test_mails_that_cannot_be_made(
    members: list[Member], monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    for member in members:
        create_operations(make_instance(member.tenant), LAST_MONTH.start)
    is_first: Callable[..., bool] = lambda invoice, *_: invoice.tenant == members[0].tenant  # noqa: E731
    monkeypatch.setattr(printing, "as_pdf", poison(printing.as_pdf, is_first))
    with capture_logs() as written, django_capture_on_commit_callbacks(execute=True):
        done = closing.close_month(NOW)
    assert "invoice_mail_failed" in events(written)
    assert (done.issued, done.waiting, len(mail.outbox)) == (3, {}, 2)
    assert [(item.tenant, item.kind) for item in ActionItem.objects.all()] == [(members[0].tenant, "mail")]
    assert UntakenMail.objects.get().invoice.tenant == members[0].tenant


def test_idle_stops(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    made = sorted((make_running(member.tenant, plan="stream") for member in members), key=lambda row: row.pk)
    monkeypatch.setattr(idle.Plan.objects, "exclude", lambda **_: idle.Plan.objects.filter(code="stream"))

    def known(instance_id: str) -> None:
        if instance_id == made[0].pk:
            raise OverflowError
        looked_at.append(instance_id)

    monkeypatch.setattr(idle, "complete_until", known)
    with capture_logs() as written:
        idle.check_idle_instances()
    assert events(written) == ["idle_stop_failed"]
    assert looked_at == [row.pk for row in made[1:]]


@pytest.fixture()
def watched(members: list[Member], tmp_path: Path) -> list[Instance]:
    """An instance of each tenant, with a rule that is about to fire."""
    cluster, made = make_fleet(tmp_path), []
    for member in members:
        instance = make_instance(member.tenant, name="orders")
        Placement.objects.create(instance=instance, cluster=cluster, bandwidth_mb_s=5, storage_gb=20)
        rules.create_rule(
            acting=member_actor(member), instance=instance, name="r", kind="storage_used", threshold=80, for_minutes=0
        )
        made.append(instance)
    storage_history.record_samples({row.pk: row.storage_bytes for row in made}, int(NOW.timestamp() * 1_000))
    return made


def test_alert_rules_of_one_batch(watched: list[Instance], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        firings, "_firing", poison(firings._firing, lambda begun, *_: begun.rule.instance_id == watched[0].pk)
    )
    with capture_logs() as written:
        turn = evaluating.evaluate(NOW)
    assert events(written) == ["alert_rules_failed"]
    assert turn.fired == 2
    assert set(AlertFiring.objects.values_list("instance_id", flat=True)) == {row.pk for row in watched[1:]}
    assert AlertRule.objects.filter(evaluated_at=NOW).count() == 2


def test_mails_of_alerts(watched: list[Instance], members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice whose mail fails is retried, and given up in the end."""
    evaluating.evaluate(NOW)
    first: Tenant = watched[0].tenant

    def send(now: datetime) -> list[str]:
        sender = poison(mailing.send, lambda notices, _is_last: notices[0].tenant == first)
        with capture_logs() as written:
            outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=sender)
        return events(written)

    assert send(NOW) == ["mail_failed"]
    assert {message.to[0] for message in mail.outbox} == {member.user.email for member in members[1:]}
    now = NOW
    for wait in outbox.RETRY_DELAYS:
        now += wait + timedelta(seconds=1)
        assert send(now) == ["mail_failed"]
    assert MailNotice.objects.get(tenant=first).finished_at is not None
    assert send(now + timedelta(days=1)) == []
