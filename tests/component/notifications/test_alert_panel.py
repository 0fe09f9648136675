"""Rules about clusters in the operator panel: created, changed and deleted there, without tenants' rules."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from brokers.models import Cluster
from notifications.alerts import firings, services
from notifications.alerts.firings import Fired
from notifications.models import AlertFiring, AlertRule
from tenants.actors import member_actor
from tenants.models import AuditEntry, User
from tests.testkit.api_cases import make_member
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.fleet import make_fleet
from tests.testkit.instances import make_instance
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db

LIST = "admin:notifications_alertrule_changelist"


@pytest.fixture()
def panel() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ops@example.com", "a long enough passphrase"))
    return client


@pytest.fixture()
def cluster(tmp_path: Path) -> Cluster:
    return make_fleet(tmp_path, name="alerts")


def form(of: Cluster, **changed: str) -> dict[str, str]:
    wanted = {"name": "copies missing", "cluster": of.pk, "kind": "cluster_under_replicated"}
    return {**wanted, "threshold": "5", "for_minutes": "10", "is_enabled": "on", **changed}


def test_a_rule_is_made_changed_and_deleted_and_each_is_in_the_audit_log(panel: Client, cluster: Cluster) -> None:
    assert "No rule watches a cluster" in panel.get(reverse(LIST)).content.decode()
    made = panel.post(reverse("admin:notifications_alertrule_add"), form(cluster))
    assert made.status_code == 302, made.content.decode()
    rule = AlertRule.objects.get()
    assert (rule.cluster, rule.tenant, rule.threshold) == (cluster, None, 5)

    AlertRule.objects.update(state="firing", value=7)
    firings.begin([Fired(rule, 7, timezone.now() - timedelta(minutes=10))], timezone.now())
    change = reverse("admin:notifications_alertrule_change", args=[rule.pk])
    assert panel.post(change, form(cluster, threshold="9")).status_code == 302
    rule.refresh_from_db()
    assert (rule.threshold, rule.state) == (9, "ok")
    assert AlertFiring.objects.get().ended_by == "changed"
    assert "copies missing" in panel.get(reverse("admin:notifications_alertfiring_changelist")).content.decode()

    panel.post(reverse(LIST), {"action": "delete_rules", "_selected_action": rule.pk})
    assert not AlertRule.objects.exists()
    actions = AuditEntry.objects.filter(action__startswith="alert_rule.").order_by("time")
    assert [entry.action.partition(".")[2] for entry in actions] == ["created", "changed", "deleted"]


@pytest.mark.parametrize(
    "changed", [{"kind": "storage_used"}, {"threshold": "0"}, {"for_minutes": "0"}, {"cluster": ""}, {"name": ""}]
)
def test_an_invalid_rule_about_a_cluster_is_refused(panel: Client, cluster: Cluster, changed: dict[str, str]) -> None:
    assert panel.post(reverse("admin:notifications_alertrule_add"), form(cluster, **changed)).status_code == 200
    assert not AlertRule.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rule_that_fires_while_an_operator_saves_it_is_left_with_no_open_firing(
    panel: Client, cluster: Cluster
) -> None:
    panel.post(reverse("admin:notifications_alertrule_add"), form(cluster))
    rule = AlertRule.objects.get()
    change = reverse("admin:notifications_alertrule_change", args=[rule.pk])
    with transaction.atomic():
        AlertRule.objects.filter(pk=rule.pk).update(state="firing", value=7)
        firings.begin([Fired(rule, 7, timezone.now() - timedelta(minutes=10))], timezone.now())
        thread, failed = start_beside(lambda: panel.post(change, form(cluster, threshold="9")))
        eventually(
            lambda: is_any_session_waiting() or not thread.is_alive(),
            what="the operator's change to wait for the evaluation",
        )
    thread.join(20)
    assert not failed
    changed = AlertRule.objects.get()
    assert (changed.threshold, changed.state, changed.version) == (9, "ok", rule.version + 1)
    assert AlertFiring.objects.get().ended_by == "changed"


def test_rules_of_tenants_are_not_shown(panel: Client) -> None:
    owner = make_member()
    rule = services.create_rule(
        acting=member_actor(owner), instance=make_instance(owner.tenant), name="secret plan", kind="storage_used",
        threshold=80,
    )  # fmt: skip
    firings.begin([Fired(rule, 85, timezone.now())], timezone.now())
    for page in (LIST, "admin:notifications_alertfiring_changelist"):
        assert "secret plan" not in panel.get(reverse(page)).content.decode()
    answer = panel.get(reverse("admin:notifications_alertrule_change", args=[rule.pk]))
    assert answer.status_code in (302, 404)


@pytest.mark.parametrize("page", ["alertrule/", "alertrule/rul-00000000/change/?x=1", "alertfiring/"])
def test_an_address_below_billing_leads_to_the_page(panel: Client, page: str) -> None:
    answer = panel.get(f"/operator/billing/{page}")
    assert (answer.status_code, answer["Location"]) == (302, f"/operator/notifications/{page}")
