"""Policy of sharing an instance's limits over brokers: set over REST and in the console, published to brokers."""

from __future__ import annotations

import pytest

from brokers.provisioning.steps import document_of
from instances.models import Instance
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


def published(instance: Instance) -> tuple[str, str]:
    instance.refresh_from_db()
    document = document_of(instance, [])
    return document.bandwidth_policy, document.quota_scope


def test_an_instance_follows_demand_and_its_quotas_hold_over_all_brokers(api: Api, instance: Instance) -> None:
    shown = api.get(f"/instances/{instance.pk}").json()["settings"]
    assert (shown["bandwidth_policy"], shown["quota_scope"]) == published(instance) == ("adaptive", "cluster")


def test_an_instance_that_is_older_than_the_settings_has_the_defaults(api: Api, instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(settings={"auto_create_topics": True, "default_partitions": 1})
    shown = api.get(f"/instances/{instance.pk}").json()["settings"]
    assert (shown["bandwidth_policy"], shown["quota_scope"]) == published(instance) == ("adaptive", "cluster")


@pytest.mark.parametrize("policy", ["adaptive", "normalised", "weighted", "literal", "static"])
@pytest.mark.parametrize("scope", ["cluster", "broker"])
def test_each_choice_reaches_the_brokers(api: Api, instance: Instance, policy: str, scope: str) -> None:
    answer = api.patch(f"/instances/{instance.pk}", {"settings": {"bandwidth_policy": policy, "quota_scope": scope}})
    assert answer.status_code in (200, 202), answer.content
    assert published(instance) == (policy, scope)


def test_a_change_is_written_down(api: Api, instance: Instance) -> None:
    api.patch(f"/instances/{instance.pk}", {"settings": {"bandwidth_policy": "static"}})
    entry = AuditEntry.objects.get(action="instance.configured")
    assert (entry.before or {})["settings"]["bandwidth_policy"] == "adaptive"
    assert (entry.after or {})["settings"]["bandwidth_policy"] == "static"


def test_a_dry_run_changes_nothing(api: Api, instance: Instance) -> None:
    answer = api.patch(f"/instances/{instance.pk}?dry_run=true", {"settings": {"bandwidth_policy": "static"}})
    assert answer.status_code == 202
    assert answer.json()["settings"]["bandwidth_policy"] == "static"
    assert published(instance) == ("adaptive", "cluster")


@pytest.mark.parametrize("settings", [{"bandwidth_policy": "fair"}, {"quota_scope": 1}, {"bandwidth_policy": None}])
def test_other_words_are_refused(api: Api, instance: Instance, settings: dict[str, object]) -> None:
    assert_problem(api.patch(f"/instances/{instance.pk}", {"settings": settings}), 400)
    assert published(instance) == ("adaptive", "cluster")


def test_nobody_elses_instance_is_there(instance: Instance) -> None:
    stranger = Api.of(make_member())
    assert_problem(stranger.patch(f"/instances/{instance.pk}", {"settings": {"quota_scope": "broker"}}), 404)
