"""Requests whose outcome brokers did not report: the audit row stays, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instances import services
from instances.models import Instance, TopicAllowList
from tenants.actors import member_actor
from tenants.errors import OutcomeUnknown
from tenants.models import AuditEntry, IdempotencyRecord, Member
from tests.component.instances.conftest import FakeDataPlane, FakeGroups
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


@pytest.fixture()
def instance(owner: Member, data_plane: FakeDataPlane, groups: FakeGroups) -> Instance:
    running = make_running(owner.tenant)
    data_plane.add(running.pk, "orders", 3)
    groups.logs = {("orders", 0): (0, 100)}
    groups.add(running.pk, "etl", {("orders", 0): 40})
    data_plane.is_lost = groups.is_lost = True
    return running


ASKED: list[tuple[str, Callable[[Api, str], Any], dict[str, Any]]] = [
    ("topic.created", lambda api, at: api.post(f"{at}/topics", {"name": "clicks"}, Idempotency_Key="a"),
     {"partitions": 3, "replication_factor": 2, "config": {}}),
    ("topic.changed", lambda api, at: api.patch(f"{at}/topics/orders", {"partitions": 6}), {"partitions": 6}),
    ("topic.deleted", lambda api, at: api.delete(f"{at}/topics/orders?for_good=true"), {}),
    ("group.offsets_reset", lambda api, at: api.post(f"{at}/groups/etl/offsets", {"to": "latest"}),
     {"to": "latest", "offsets": [["orders", 0, 100]]}),
    ("group.deleted", lambda api, at: api.delete(f"{at}/groups/etl"), {}),
    ("group.offsets_deleted", lambda api, at: api.delete(f"{at}/groups/etl/offsets?topic=orders"),
     {"offsets": [["orders", 0, None]]}),
    ("topic.records_deleted", lambda api, at: api.post(f"{at}/topics/orders/purge", {"before": {"0": 40}}),
     {"partitions": 1, "messages": 40, "offsets": [[0, 40]]}),
]  # fmt: skip


@pytest.mark.parametrize(("action", "ask", "after"), ASKED, ids=[action for action, _, _ in ASKED])
def test_the_ledger_has_what_nobody_knows_the_outcome_of(
    action: str,
    ask: Callable[[Api, str], Any],
    after: dict[str, Any],
    api: Api,
    owner: Member,
    instance: Instance,
) -> None:
    problem = assert_problem(ask(api, f"/instances/{instance.pk}"), 503, "outcome_unknown")
    assert "Look at it again" in problem["detail"]
    entry = AuditEntry.objects.get(action=action)
    assert entry.after == {**after, "outcome": "unknown"}
    assert entry.tenant_id == owner.tenant_id
    assert entry.request_id == problem["request_id"]
    assert not IdempotencyRecord.objects.exists()


def test_address_lists_stay_where_nobody_knows_whether_their_topic_is_gone(api: Api, instance: Instance) -> None:
    """Otherwise a topic that still exists would be open to everybody."""
    TopicAllowList.objects.create(instance=instance, topic="orders", produce_ips=["10.0.0.0/8"], consume_ips=[])
    assert_problem(api.delete(f"/instances/{instance.pk}/topics/orders?for_good=true"), 503, "outcome_unknown")
    assert TopicAllowList.objects.get(instance=instance).produce_ips == ["10.0.0.0/8"]


def test_a_change_with_an_unknown_part_has_its_rest_taken_back(api: Api, instance: Instance) -> None:
    body = {"partitions": 6, "allow_list": {"produce": ["10.0.0.1"]}}
    assert_problem(api.patch(f"/instances/{instance.pk}/topics/orders", body), 503, "outcome_unknown")
    assert not TopicAllowList.objects.filter(instance=instance).exists()
    assert [entry.action for entry in AuditEntry.objects.filter(target_id__startswith=instance.pk)] == ["topic.changed"]


def test_services_called_by_the_console_keep_the_row_as_well(owner: Member, instance: Instance) -> None:
    with pytest.raises(OutcomeUnknown):
        services.delete_topic(acting=member_actor(owner), instance=instance, name="orders", for_good=True)
    assert AuditEntry.objects.get(action="topic.deleted").after == {"outcome": "unknown"}


def test_a_reset_of_unknown_outcome_that_was_done_can_be_undone(
    owner: Member, instance: Instance, groups: FakeGroups, api: Api
) -> None:
    assert_problem(api.post(f"/instances/{instance.pk}/groups/etl/offsets", {"to": "latest"}), 503)
    groups.is_lost = False
    entry = AuditEntry.objects.get(action="group.offsets_reset")
    services.undo_offsets(acting=member_actor(owner), instance=instance, group="etl", entry_id=entry.pk)
    assert groups.committed(instance.pk, "etl") == {("orders", 0): 40}


def test_the_finished_half_of_a_change_is_recorded_when_the_other_half_is_refused(
    api: Api, instance: Instance, data_plane: FakeDataPlane
) -> None:
    body = {"partitions": 6, "config": {"retention.ms": "1000"}}
    assert_problem(api.patch(f"/instances/{instance.pk}/topics/orders", body), 503, "outcome_unknown")
    assert data_plane.configs[instance.pk, "orders"] == {"retention.ms": "1000"}
    assert AuditEntry.objects.filter(action="topic.changed").count() == 1
