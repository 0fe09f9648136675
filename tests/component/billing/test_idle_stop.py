"""Suspension of idle instances of a plan: a warning by mail, the suspension, and the tenant's resume."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.idle import services as idle
from billing.models import Plan, UsageHour, UsageOffset
from instances import services as instances
from instances.choices import OperationType, Reason
from instances.models import Instance, Operation
from tenants.actors import system_actor
from tenants.models import Member, User
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_fleet, make_running, place

pytestmark = pytest.mark.django_db

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 7


@pytest.fixture()
def owner() -> Member:
    member = make_member()
    User.objects.filter(pk=member.user_id).update(email_verified_at=timezone.now())
    return member


@pytest.fixture()
def unused(owner: Member, tmp_path: Path) -> Instance:
    instance = make_running(owner.tenant, name="toys", phase_since=BEGAN)
    Plan.objects.create(
        code=instance.plan, name="Free", bandwidth_mb_s=1, storage_gb=1, bandwidth_mb_s_max=1, storage_gb_max=1,
        partitions_max=10, idle_stop_days=DAYS,
    )  # fmt: skip
    cluster = make_fleet(tmp_path)
    place(instance, cluster)
    UsageOffset.objects.create(cluster_id=cluster.pk, topic="__usage", partition=0, next_offset=1)
    return instance


def look(days: float, capture: Callable[..., Any]) -> list[str]:
    """Runs the task once, with usage known for a span; returns the subjects of its mails."""
    UsageOffset.objects.update(updated_at=BEGAN + timedelta(days=days, minutes=1))
    before = len(mail.outbox)
    with capture(execute=True):
        idle.check_idle_instances()
    return [message.subject for message in mail.outbox[before:]]


def moved(instance: Instance, days: float, direction: str = "produce") -> None:
    UsageHour.objects.create(
        instance_id=instance.pk, hour=BEGAN + timedelta(days=days), direction=direction, bytes=1, requests=1
    )


def reason_of(instance: Instance) -> str:
    return Instance.objects.get(pk=instance.pk).suspended_for


def test_it_is_warned_of_once_and_stopped_and_its_tenant_lets_it_run_again(
    owner: Member, unused: Instance, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    said = ["[Penstock] toys is not used and will be stopped"]
    looks = [look(day, django_capture_on_commit_callbacks) for day in (1, 5.9, 6, 6, 6.9)]
    assert looks == [[], [], said, [], []]
    assert "2026" in mail.outbox[-1].body and f"/instances/{unused.pk}/" in mail.outbox[-1].body
    assert reason_of(unused) == ""

    look(7, django_capture_on_commit_callbacks)
    look(7.1, django_capture_on_commit_callbacks)
    assert reason_of(unused) == Reason.IDLE
    assert Operation.objects.filter(instance=unused, type=OperationType.SUSPEND).count() == 1

    assert Api.of(owner).post(f"/instances/{unused.pk}/resume").status_code == 202
    assert reason_of(unused) == ""
    assert_problem(Api.of(owner).post(f"/instances/{unused.pk}/resume"), 403)


def test_traffic_or_a_change_restarts_the_idle_period(
    unused: Instance, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    look(6, django_capture_on_commit_callbacks)
    moved(unused, 6.5, "consume")
    assert look(7.5, django_capture_on_commit_callbacks) == []
    assert reason_of(unused) == ""
    moved(unused, 8, "stored")
    assert len(look(12.6, django_capture_on_commit_callbacks)) == 1, "what is stored is no use"
    Instance.objects.filter(pk=unused.pk).update(phase_since=BEGAN + timedelta(days=13))
    look(19, django_capture_on_commit_callbacks)
    assert reason_of(unused) == ""


def test_where_usage_is_not_known_nobody_is_idle(
    unused: Instance, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    UsageOffset.objects.all().delete()
    assert look(90, django_capture_on_commit_callbacks) == []
    assert reason_of(unused) == ""


def test_a_plan_without_an_idle_stop_stops_nobody(
    unused: Instance, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    Plan.objects.update(idle_stop_days=0)
    assert look(90, django_capture_on_commit_callbacks) == []
    assert reason_of(unused) == ""


def test_a_tenant_ends_no_other_suspension(owner: Member, unused: Instance) -> None:
    instances.suspend_instance(acting=system_actor("test"), instance=unused, reason=Reason.BY_OPERATOR)

    assert_problem(Api.of(owner).post(f"/instances/{unused.pk}/resume"), 403)

    assert reason_of(unused) == Reason.BY_OPERATOR


def test_the_console_resumes_it_with_a_click(
    owner: Member, unused: Instance, client: Client, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    for day in (6, 7):
        look(day, django_capture_on_commit_callbacks)
    client.force_login(owner.user)
    page = client.get(reverse("page-instance", args=[unused.pk])).content.decode()
    assert "because nobody used it" in page
    assert reverse("page-instance-resume", args=[unused.pk]) in page

    client.post(reverse("page-instance-resume", args=[unused.pk]))

    assert reason_of(unused) == ""
