"""Settings of two real brokers over REST and in the panel: read with their meaning, changed for one or for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db.models import F
from django.test import Client
from django.urls import reverse

from brokers.dataplane import admin_client
from brokers.limits import SETTINGS_PER_CHANGE_MAX
from brokers.models import Cluster
from tenants.models import AuditEntry
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db

KEY = "log.cleaner.threads"


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    overrides = {"log.retention.hours": "2", "replica.lag.max.messages": "4000"}
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("settings"), size=2, overrides=overrides) as running:
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Cluster:
    """The fleet of the control plane with these brokers."""
    cache.clear()
    fleet = make_fleet(tmp_path, brokers=2)
    Path(fleet.control_secret_file).write_text(engines.secret)
    for broker in engines.brokers:
        settings = broker.settings
        fleet.brokers.filter(number=settings.broker_id).update(
            internal_port=settings.internal_port, admin_port=settings.admin_port
        )
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    return fleet


def of_broker(cluster: Cluster, number: int) -> str:
    return f"/operator/brokers/{cluster.brokers.get(number=number).pk}/settings"


def of_all(cluster: Cluster) -> str:
    return f"/operator/clusters/{cluster.pk}/settings"


def setting(operator: Api, at: str, name: str = KEY) -> dict[str, Any]:
    answer = operator.get(at)
    assert answer.status_code == 200, answer.json()
    (found,) = [item for item in answer.json()["items"] if item["name"] == name]
    assert isinstance(found, dict)
    return found


def test_every_setting_is_shown_with_its_meaning_and_origin(operator: Api, cluster: Cluster) -> None:
    shown = {item["name"]: item for item in operator.get(of_broker(cluster, 2)).json()["items"]}
    assert len(shown) > 80
    assert all(item["documentation"] for item in shown.values())
    assert (shown["broker.id"]["value"], shown["broker.id"]["is_changeable"]) == ("2", False)
    assert shown[KEY] == {
        "name": KEY, "type": "integer", "value": "1", "level": "default", "values": {"default": "1"},
        "is_changeable": True, "documentation": "Number of logs that are cleaned concurrently.",
    }  # fmt: skip
    retention = shown["log.retention.ms"]
    assert (retention["value"], retention["level"]) == ("7200000", "start")
    assert shown["log.roll.ms"]["value"] == "604800000"


def test_a_brokers_own_value_goes_before_that_of_all_and_both_can_be_removed(operator: Api, cluster: Cluster) -> None:
    changed = operator.patch(of_all(cluster), {"settings": {KEY: "3"}})
    assert changed.status_code == 200, changed.json()
    for number in (1, 2):
        at = of_broker(cluster, number)
        eventually(lambda at=at: setting(operator, at)["value"] == "3", what=f"broker {number} to have it")
    assert operator.patch(of_broker(cluster, 2), {"settings": {KEY: "2"}}).status_code == 200
    eventually(lambda: setting(operator, of_broker(cluster, 2))["value"] == "2", what="broker 2 to have its own")
    own = setting(operator, of_broker(cluster, 2))
    assert (own["level"], own["values"]) == ("broker", {"broker": "2", "cluster": "3", "default": "1"})
    assert setting(operator, of_broker(cluster, 1))["level"] == "cluster"

    operator.patch(of_broker(cluster, 2), {"settings": {KEY: None}})
    operator.patch(of_all(cluster), {"settings": {KEY: None}})
    for number in (1, 2):
        at = of_broker(cluster, number)
        eventually(lambda at=at: setting(operator, at)["level"] == "default", what=f"broker {number} to forget it")
    rows = AuditEntry.objects.filter(action__endswith=".settings_changed")
    assert sorted((row.action, str(row.before[KEY]), str(row.after[KEY])) for row in rows) == [
        ("broker.settings_changed", "2", "None"),
        ("broker.settings_changed", "None", "2"),
        ("cluster.settings_changed", "3", "None"),
        ("cluster.settings_changed", "None", "3"),
    ]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({KEY: "many"}, "Not a value of type INT"),
        ({KEY: "2", "log.cleaner.io.buffer.size": "1"}, "Invalid value 1"),
        ({"max.connections": "1"}, "Cannot update these configs dynamically"),
        ({"no.such.setting": "1"}, "Unknown broker config name"),
        ({"group.min.session.timeout.ms": "2000000"}, "group.m"),
    ],
)
def test_a_refusal_of_a_broker_is_shown_in_its_words_and_changes_nothing(
    operator: Api, cluster: Cluster, settings: dict[str, str], reason: str
) -> None:
    for at in (of_broker(cluster, 1), of_all(cluster)):
        problem = assert_problem(operator.patch(at, {"settings": settings}), 400)
        assert reason in problem["detail"]
    assert setting(operator, of_broker(cluster, 1))["level"] == "default"
    assert not AuditEntry.objects.filter(action__endswith=".settings_changed").exists()


def test_a_dry_run_asks_the_broker_and_changes_nothing(operator: Api, cluster: Cluster) -> None:
    for at in (of_broker(cluster, 1), of_all(cluster)):
        assert operator.patch(f"{at}?dry_run=true", {"settings": {KEY: "2"}}).status_code == 200
        assert_problem(operator.patch(f"{at}?dry_run=true", {"settings": {KEY: "x"}}), 400)
    assert setting(operator, of_broker(cluster, 1))["level"] == "default"
    assert not AuditEntry.objects.filter(action__endswith=".settings_changed").exists()


def test_the_worst_requests_are_refused_before_a_broker_is_asked(operator: Api, cluster: Cluster) -> None:
    at = of_all(cluster)
    for settings in (
        {},
        {f"k{number}": "1" for number in range(SETTINGS_PER_CHANGE_MAX + 1)},
        {"k" * 201: "1"},
        {KEY: "1" * 100_000},
        {KEY: {"a": 1}},
    ):
        assert_problem(operator.patch(at, {"settings": settings}), 400)
    assert_problem(operator.patch("/operator/brokers/bro-00000000/settings", {"settings": {KEY: "1"}}), 404)
    assert_problem(operator.get("/operator/clusters/cl-00000000/settings"), 404)


def test_tenants_see_and_change_none_of_it(cluster: Cluster) -> None:
    tenant = Api.of(make_member())
    for at in (of_broker(cluster, 1), of_all(cluster)):
        assert_problem(tenant.get(at), 403)
        assert_problem(tenant.patch(at, {"settings": {KEY: "2"}}), 403)


def test_a_broker_that_does_not_answer_is_a_503_and_the_next_one_is_asked_for_all(
    operator: Api, cluster: Cluster
) -> None:
    cluster.brokers.filter(number=1).update(internal_port=1)
    assert_problem(operator.get(of_broker(cluster, 1)), 503)
    assert setting(operator, of_all(cluster))["value"] == "1"


class TestPanel:
    def test_a_setting_is_changed_for_a_broker_and_the_page_says_where_it_comes_from(
        self, panel: Client, operator: Api, cluster: Cluster
    ) -> None:
        at = reverse("admin:brokers_settings", args=[cluster.pk])
        page = panel.get(at, {"broker": "1"})
        assert page.status_code == 200
        assert "Number of logs that are cleaned concurrently." in page.content.decode()
        edit = reverse("admin:brokers_setting_edit", args=[cluster.pk, KEY])
        assert panel.get(edit, {"broker": "1"}).status_code == 200
        wrong = panel.post(f"{edit}?broker=1", {"value": "many"})
        assert "Not a value of type INT" in wrong.content.decode()
        assert panel.post(f"{edit}?broker=1", {"value": "2"}).status_code == 302
        eventually(lambda: setting(operator, of_broker(cluster, 1))["level"] == "broker", what="the broker to have it")
        assert panel.post(f"{edit}?broker=1", {"value": ""}).status_code == 302
        eventually(lambda: setting(operator, of_broker(cluster, 1))["level"] == "default", what="the broker to forget")

    def test_a_setting_that_needs_a_restart_or_is_unknown_has_no_form(self, panel: Client, cluster: Cluster) -> None:
        for name in ("broker.id", "no.such.setting"):
            assert panel.get(reverse("admin:brokers_setting_edit", args=[cluster.pk, name])).status_code == 404
        at = reverse("admin:brokers_settings", args=[cluster.pk])
        for broker in ("9", "x", "9" * 30):
            assert panel.get(at, {"broker": broker}).status_code == 404

    def test_a_cluster_whose_brokers_are_silent_has_a_page_all_the_same(self, panel: Client, cluster: Cluster) -> None:
        cluster.brokers.update(internal_port=F("number"))
        page = panel.get(reverse("admin:brokers_settings", args=[cluster.pk]))
        assert page.status_code == 200
        assert "No broker answers." in page.content.decode()
