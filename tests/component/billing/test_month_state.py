"""State of a month before it is closed, and the runs that operators start."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from kombu.exceptions import OperationalError

from billing import services
from billing.dunning import services as dunning
from billing.invoices import closing, mailing, month_runs
from billing.invoices.month_runs import RunKind, RunState
from billing.invoices.periods import month_before, month_of
from billing.lake import outcomes, reconciliation
from billing.models import BillingProfile, Invoice, LakeFile, Seller, UsageOffset
from billing.reporting import month_state
from billing.reporting.month_state import NameSample
from instances.models import Operation
from notifications.models import DeliveryState, WebhookDelivery, WebhookEndpoint, WebhookEvent
from tenants import mails
from tenants.actors import operator_actor
from tenants.errors import Conflict, PermissionDenied
from tenants.models import Member, Tenant, User
from tests.testkit.api_cases import make_member
from tests.testkit.billing import DUE, create_operations, invoice_of
from tests.testkit.fleet import make_fleet, make_instance, place
from tests.testkit.instances import make_instance as make_brook

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LAST_MONTH = month_before(month_of(NOW))
MONTH = f"{LAST_MONTH.start:%Y-%m}"


@pytest.fixture(autouse=True)
def plans() -> None:
    cache.clear()
    services.ensure_default_plans()


@pytest.fixture()
def tenant() -> Tenant:
    """A tenant with an instance since the begin of last month."""
    made = make_member().tenant
    create_operations(make_brook(made), LAST_MONTH.start)
    return made


@pytest.fixture()
def operator() -> User:
    return User.objects.create_superuser("ops@example.com", "a long enough passphrase")


def start(operator: User, now: datetime = NOW) -> month_runs.MonthRun:
    return month_runs.start(RunKind.ISSUE, acting=operator_actor(operator), month=LAST_MONTH.start, now=now)


def test_tenants_waiting_for_an_invoice_without_a_profile_or_a_price_are_named(tenant: Tenant) -> None:
    other = make_member().tenant
    Tenant.objects.filter(pk=other.pk).update(name="Beta")
    create_operations(make_brook(other), LAST_MONTH.start)
    Operation.objects.filter(tenant=other).update(plan="ghost")
    BillingProfile.objects.create(tenant=tenant)
    state = month_state.month_state(LAST_MONTH, NOW)
    assert (state.to_invoice, state.issued, state.has_seller) == (2, 0, False)
    assert state.without_profile == NameSample(1, ("Beta",))
    assert (state.unpriced, state.unpriced_tenants) == (NameSample(1, ("ghost (EUR)",)), 1)
    closing.close_month(NOW)
    Seller.objects.create()
    state = month_state.month_state(LAST_MONTH, NOW)
    assert (state.to_invoice, state.issued, state.open, state.has_seller) == (1, 1, 1, True)


def test_the_check_of_prices_agrees_with_issuing(tenant: Tenant) -> None:
    assert month_state.month_state(LAST_MONTH, NOW).unpriced.count == 0
    Tenant.objects.filter(pk=tenant.pk).update(currency="CHF")
    assert month_state.month_state(LAST_MONTH, NOW).unpriced == NameSample(1, ("brook (CHF)",))
    assert list(closing.close_month(NOW).waiting) == [tenant.slug]


@pytest.mark.parametrize(
    ("profile", "lacks"),
    [
        ({}, False),
        ({"tax_percent": 19}, True),
        ({"tax_percent": 19, "legal_name": "A", "address": "B"}, False),
        ({"reverse_charge": True, "legal_name": "A", "address": "B"}, True),
        ({"reverse_charge": True, "legal_name": "A", "address": "B", "tax_id": "DE1"}, False),
    ],
)
def test_tax_details_are_needed_where_tax_is_charged_or_owed(
    tenant: Tenant, profile: dict[str, Any], lacks: bool
) -> None:
    BillingProfile.objects.create(tenant=tenant, **profile)
    assert month_state.month_state(LAST_MONTH, NOW).without_tax_details.count == lacks


def test_a_cluster_is_behind_until_each_of_its_partitions_was_read_past_the_end(tenant: Tenant, tmp_path: Path) -> None:
    cluster = make_fleet(tmp_path, brokers=1)
    make_fleet(tmp_path, brokers=1)  # without instances: nobody waits for it
    place(make_instance(tenant), cluster)
    assert month_state.month_state(LAST_MONTH, NOW).clusters_behind == NameSample(1, (cluster.name,))
    for partition, read_at in enumerate((NOW, LAST_MONTH.end)):
        row = UsageOffset.objects.create(cluster_id=cluster.pk, topic="__usage", partition=partition, next_offset=1)
        UsageOffset.objects.filter(pk=row.pk).update(updated_at=read_at)
    assert month_state.month_state(LAST_MONTH, NOW).clusters_behind.count == 1
    UsageOffset.objects.update(updated_at=LAST_MONTH.end + timedelta(minutes=1))
    state = month_state.month_state(LAST_MONTH, NOW)
    assert (state.clusters, state.clusters_behind.count) == (1, 0)


def test_webhooks_that_were_given_up_are_counted(tenant: Tenant) -> None:
    endpoint = WebhookEndpoint.objects.create(tenant=tenant, url="https://hooks.example/", secret="x")
    for event, state, at in (
        (WebhookEvent.INVOICE_ISSUED, DeliveryState.FAILED, LAST_MONTH.end + timedelta(hours=1)),
        (WebhookEvent.INVOICE_ISSUED, DeliveryState.FAILED, LAST_MONTH.start),
        (WebhookEvent.INVOICE_ISSUED, DeliveryState.DELIVERED, NOW),
        (WebhookEvent.TEST, DeliveryState.FAILED, NOW),
    ):
        WebhookDelivery.objects.create(endpoint=endpoint, event=event, state=state, payload={}, created_at=at)
    assert month_state.month_state(LAST_MONTH, NOW).webhooks_failed == 1


def test_mails_that_were_not_taken_and_tenants_that_none_reaches_are_named(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    BillingProfile.objects.create(tenant=tenant, email="bills@acme.example")
    unreachable = make_member()
    Tenant.objects.filter(pk=unreachable.tenant_id).update(name="Nobody")
    User.objects.filter(pk=unreachable.user_id).update(email_verified_at=None)
    create_operations(make_brook(unreachable.tenant), LAST_MONTH.start)
    monkeypatch.setattr(mails, "send", lambda *_args, **_more: False)
    with django_capture_on_commit_callbacks(execute=True):
        closing.close_month(NOW)
    number = Invoice.objects.get(tenant=tenant).number
    state = month_state.month_state(LAST_MONTH, NOW)
    assert (
        state.mails_rejected
        == NameSample(1, (number,))
        == NameSample(1, tuple(mailing.invoices_with_rejected_mail(LAST_MONTH.start)))
    )
    assert state.unreachable_tenants == NameSample(1, ("Nobody",))


def test_a_reminder_that_was_not_taken_is_noted_as_well(
    tenant: Tenant, django_capture_on_commit_callbacks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    invoice = invoice_of(tenant, period_start=datetime(2026, 9, 1, tzinfo=UTC))
    with django_capture_on_commit_callbacks(execute=True):
        dunning.dun(DUE + timedelta(days=4))
    assert mailing.invoices_with_rejected_mail(invoice.period_start) == []
    monkeypatch.setattr(mails, "send", lambda *_args, **_more: False)
    with django_capture_on_commit_callbacks(execute=True):
        dunning.dun(DUE + timedelta(days=11))
    assert mailing.invoices_with_rejected_mail(invoice.period_start) == [invoice.number]


# --- the lake ---------------------------------------------------------------------------------------------------------


def test_one_day_an_hour_is_worked_out_again_until_the_outcome_of_each_is_known() -> None:
    today = date(2026, 11, 20)
    assert reconciliation.day_without_outcome(today) is None, "there is no lake"
    LakeFile.objects.create(
        path="a", cluster_id="x", day=date(2026, 11, 15), rows=1, added_bytes=1, schema_version=1
    )  # fmt: skip
    found: list[date] = []
    while (day := reconciliation.day_without_outcome(today)) is not None:
        found.append(day)
        outcomes.store(day, 0)
    assert found == [date(2026, 11, 18), date(2026, 11, 17), date(2026, 11, 16)]


def test_a_day_is_equal_different_or_broken(tmp_path: Path) -> None:
    from billing.lake.address import open_lake
    from billing.lake.replay import LakeBroken

    place_, day = open_lake(tmp_path.as_uri()), date(2026, 11, 15)
    assert reconciliation.reconcile(place_, day) == []
    assert outcomes.of_days([day]) == {day: 0}
    LakeFile.objects.create(path="gone", cluster_id="x", day=day, rows=1, added_bytes=1, schema_version=1)
    with pytest.raises(LakeBroken):
        reconciliation.reconcile(place_, day)
    assert outcomes.of_days([day, date(2026, 11, 14)]) == {day: outcomes.BROKEN}


# --- runs -------------------------------------------------------------------------------------------------------------


def test_one_run_at_a_time_until_it_ends_or_is_silent_for_long(operator: User, tenant: Tenant) -> None:
    assert start(operator).state == RunState.QUEUED
    with pytest.raises(Conflict):
        start(operator, NOW + month_runs.STALLED_AFTER / 2)
    assert start(operator, NOW + month_runs.STALLED_AFTER * 2).state == RunState.QUEUED
    month_runs.run(RunKind.ISSUE, MONTH, operator.pk)
    run = month_runs.last_run(RunKind.ISSUE, MONTH)
    assert run is not None
    assert (run.state, run.issued, run.done, run.total, run.by) == (RunState.DONE, 1, 1, 1, "ops@example.com")
    assert start(operator).state == RunState.QUEUED, "it ended"
    assert Invoice.objects.filter(tenant=tenant).count() == 1


def test_a_tenant_starts_no_run() -> None:
    from tenants.actors import member_actor

    with pytest.raises(PermissionDenied):
        month_runs.start(
            RunKind.ISSUE, acting=member_actor(make_member()), month=LAST_MONTH.start, now=NOW
        )  # fmt: skip
    assert month_runs.last_run(RunKind.ISSUE, MONTH) is None


def test_a_queue_that_does_not_answer_leaves_a_run_that_failed(
    operator: User, django_capture_on_commit_callbacks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_more: Any) -> None:
        raise OperationalError("redis is away")

    monkeypatch.setattr(month_runs.current_app, "send_task", refuse)
    with django_capture_on_commit_callbacks(execute=True):
        start(operator)
    run = month_runs.last_run(RunKind.ISSUE, MONTH)
    assert run is not None and run.state == RunState.FAILED


def test_a_run_that_ends_with_an_error_says_so(operator: User, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any, **_more: Any) -> None:
        raise RuntimeError("the disk is full")

    start(operator)
    monkeypatch.setattr(closing, "close_month", fail)
    with pytest.raises(RuntimeError):
        month_runs.run(RunKind.ISSUE, MONTH, operator.pk)
    run = month_runs.last_run(RunKind.ISSUE, MONTH)
    assert run is not None and run.state == RunState.FAILED
    assert Member.objects.filter(tenant=tenant).exists()


def test_the_reasons_of_those_that_wait_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"tenant-{n}": "plan ghost has no price" for n in range(month_runs.NAMED_MAX + 5)}
    month_runs.store_closing(
        closing.ClosingResult(period=LAST_MONTH, issued=1, nothing_to_charge=2, waiting=many), NOW
    )  # fmt: skip
    last = month_runs.last_closing(MONTH)
    assert last is not None
    assert (last.waiting_in_all, len(last.waiting)) == (month_runs.NAMED_MAX + 5, month_runs.NAMED_MAX)
