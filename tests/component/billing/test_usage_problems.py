"""Implausible usage records for operators: reports and their handling."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.models import NO_BROKER, ProblemKind, UsageProblem
from billing.pipeline import schema
from brokers.models import Cluster
from tenants.models import AuditEntry, User
from tests.testkit.api_cases import make_user
from tests.testkit.fleet import make_fleet

pytestmark = pytest.mark.django_db


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    make_fleet(tmp_path)
    return Cluster.objects.get()


def problem(cluster: Cluster, kind: ProblemKind, **given: Any) -> UsageProblem:
    now = timezone.now()
    values = {"partition": 0, "broker_id": 3, "records": 1_200, "last_offset": 7, "first_at": now, "last_at": now}
    return UsageProblem.objects.create(cluster_id=cluster.pk, kind=kind, **(values | given))


def first_page(client: Client, language: str = "en") -> str:
    return client.get(reverse("admin:index"), headers={"accept-language": language}).content.decode()


def test_each_kind_is_an_action_item_until_it_is_looked_after(panel: Client, cluster: Cluster) -> None:
    assert {*ProblemKind.values} == {schema.MALFORMED, schema.NEWER_VERSION, schema.EPOCH_REUSED, schema.CLOCK}
    problem(cluster, ProblemKind.MALFORMED, broker_id=NO_BROKER, detail="[1,<b>")
    problem(cluster, ProblemKind.NEWER_VERSION, broker_id=NO_BROKER)
    problem(cluster, ProblemKind.EPOCH_REUSED)
    clock = problem(cluster, ProblemKind.CLOCK, detail="1795000000000")
    page = first_page(panel)
    changelist = reverse("admin:billing_usageproblem_changelist")
    for said in (
        f"Usage records of {cluster.name} that cannot be read: 1,200.",
        f"Usage records of {cluster.name} of a newer version: 1,200.",
        f"Broker 3 of {cluster.name} reports usage under an epoch that was used before: 1,200 records are not billed.",
        f"The clock of broker 3 of {cluster.name} is wrong: it says 2026-11-18 11:06:40 UTC.",
    ):
        assert said in page
    assert page.count(changelist) >= 4
    assert f"集群 {cluster.name} 的 Broker 3 时钟有误" in first_page(panel, "zh-hans")
    listed = panel.get(changelist).content.decode()
    assert "[1,&lt;b&gt;" in listed and "2026-11-18 11:06:40 UTC" in listed
    chosen = {"action": "mark_handled", "_selected_action": [clock.pk]}
    for _ in range(2):
        panel.post(changelist, chosen, follow=True)
    clock.refresh_from_db()
    assert clock.handled_at is not None
    assert AuditEntry.objects.filter(action="usage_problem.handled").count() == 1
    assert "The clock of broker" not in first_page(panel)


def test_an_operator_who_may_not_see_usage_sees_no_problem(cluster: Cluster) -> None:
    problem(cluster, ProblemKind.EPOCH_REUSED)
    user = make_user()
    user.is_staff = True
    user.save()
    user.user_permissions.add(Permission.objects.get(codename="view_cluster"))
    client = Client()
    client.force_login(user)
    assert "an epoch that was used before" not in first_page(client)


def test_the_latest_problems_are_shown_up_to_the_room_of_the_page(panel: Client, cluster: Cluster) -> None:
    now = timezone.now()
    for number in range(60):
        problem(cluster, ProblemKind.EPOCH_REUSED, broker_id=number, last_at=now - timedelta(minutes=number))
    page = first_page(panel)
    assert "Broker 0 of" in page and "Broker 59 of" not in page
