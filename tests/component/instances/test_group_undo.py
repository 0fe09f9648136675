"""Undo of changes to a group's offsets and of deletions: complete, and with exact audit rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instances import services
from instances.groups import selectors
from instances.models import Instance
from instances.services import group_common
from tenants import audit
from tenants.actors import Actor, member_actor
from tenants.errors import Conflict, DomainError, NotFound, Unavailable
from tenants.models import AuditEntry, Member
from tests.component.instances.conftest import FakeDataPlane, FakeGroups
from tests.component.instances.test_groups_api import at, good
from tests.component.instances.two_groups import TARGETS, with_groups
from tests.testkit.api_cases import Api, assert_problem

pytestmark = pytest.mark.django_db


@pytest.fixture()
def acting(owner: Member) -> Actor:
    return member_actor(owner)


@pytest.fixture()
def instance(owner: Member, groups: FakeGroups, data_plane: FakeDataPlane) -> Instance:
    return with_groups(owner.tenant, groups, data_plane)


def test_a_reset_is_undone_from_its_audit_row(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    before = groups.committed(instance.pk, "etl")
    target = TARGETS["earliest"]
    done = services.reset_offsets(
        acting=acting, instance=instance, group="etl", target=target, selection=[("orders", None), ("clicks", [0])]
    )
    assert ("orders", 2) in groups.committed(instance.pk, "etl")
    services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=done.entry_id)
    assert groups.committed(instance.pk, "etl") == before
    assert selectors.last_undoable_change(instance, services.group_ref(instance, "etl")) is None


@pytest.mark.parametrize("act", ["reset", "delete", "forget"])
def test_undone_offsets_come_back_whole(act: str, acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    """Applications store state in the metadata, and the leader epoch is needed to detect truncation."""
    committed = groups.offsets[instance.pk, "etl"]
    committed["orders", 0] = replace(committed["orders", 0], leader_epoch=7, metadata="AgAAAYw5 'z' \0 消费")
    committed["orders", 1] = replace(committed["orders", 1], metadata="\0")
    before = dict(committed)
    if act == "reset":
        target = TARGETS["earliest"]
        entry_id = services.reset_offsets(acting=acting, instance=instance, group="etl", target=target).entry_id
    elif act == "delete":
        entry_id = services.delete_group(acting=acting, instance=instance, group="etl").pk
    else:
        entry_id = services.delete_offsets(acting=acting, instance=instance, group="etl", topic="orders").pk
    services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=entry_id)
    assert groups.offsets[instance.pk, "etl"] == before


def test_an_audit_row_holds_no_more_metadata_than_a_page_can_show(
    acting: Actor, instance: Instance, groups: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_common, "AUDITED_METADATA_CHARS_MAX", 5)
    committed = groups.offsets[instance.pk, "etl"]
    for place in committed:
        committed[place] = replace(committed[place], leader_epoch=2, metadata="1234")
    entry = services.delete_group(acting=acting, instance=instance, group="etl")
    assert [row[3:] for row in (entry.before or {})["offsets"]] == [[2, "1234"], [2, ""], [2, ""]]


def test_offsets_restored_after_a_partial_refusal_are_whole(
    acting: Actor, instance: Instance, groups: FakeGroups
) -> None:
    committed = groups.offsets[instance.pk, "etl"]
    committed["clicks", 0] = replace(committed["clicks", 0], leader_epoch=7, metadata="kept")
    before = dict(committed)
    groups.refused_partitions.add(("orders", 1))
    with pytest.raises(Unavailable):
        services.reset_offsets(acting=acting, instance=instance, group="etl", target=TARGETS["earliest"])
    assert groups.offsets[instance.pk, "etl"] == before


def test_an_audit_row_with_bare_offsets_can_be_undone(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    """Older versions wrote such rows."""
    entry = audit.record(
        acting, "group.offsets_reset", services.group_ref(instance, "etl"), {"offsets": [["clicks", 0, 8]]},
        {"to": "earliest", "offsets": [["clicks", 0, 3]]}, tenant=instance.tenant,
    )  # fmt: skip
    services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=entry.pk)
    assert groups.committed(instance.pk, "etl")["clicks", 0] == 8


def test_offsets_that_moved_since_are_not_undone(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    done = services.reset_offsets(acting=acting, instance=instance, group="etl", target=TARGETS["earliest"])
    groups.add(instance.pk, "etl", {**groups.committed(instance.pk, "etl"), ("orders", 1): 7})
    with pytest.raises(Conflict, match="moved since"):
        services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=done.entry_id)


def test_an_undo_takes_only_rows_of_its_own_group(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    groups.add(instance.pk, "other", {("clicks", 0): 0})
    done = services.reset_offsets(acting=acting, instance=instance, group="etl", target=TARGETS["earliest"])
    with pytest.raises(NotFound):
        services.undo_offsets(acting=acting, instance=instance, group="other", entry_id=done.entry_id)


def test_a_deleted_group_can_be_brought_back(acting: Actor, instance: Instance, groups: FakeGroups) -> None:
    before = groups.committed(instance.pk, "etl")
    entry = services.delete_group(acting=acting, instance=instance, group="etl")
    assert groups.committed(instance.pk, "etl") == {}
    services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=entry.pk)
    assert groups.committed(instance.pk, "etl") == before


def test_offsets_of_one_topic_are_forgotten(api: Api, instance: Instance, groups: FakeGroups) -> None:
    good(api.delete(at(instance, "etl", "offsets") + "?topic=orders"), 204)
    assert groups.committed(instance.pk, "etl") == {("clicks", 0): 3}
    assert_problem(api.delete(at(instance, "etl", "offsets") + "?topic=orders"), 404, "not_found")
    assert_problem(api.delete(at(instance, "etl", "offsets")), 400)
    problem = assert_problem(api.delete(at(instance, "live", "offsets") + "?topic=orders"), 409, "topic_subscribed")
    assert "read this topic" in problem["detail"]


@pytest.mark.parametrize(
    ("meaning", "status"),
    [(Conflict("Read.", code="topic_subscribed"), 409), (NotFound("Gone."), 404), (Unavailable("Broken."), 503)],
)
def test_offsets_that_are_not_forgotten_say_why(
    api: Api, instance: Instance, groups: FakeGroups, meaning: DomainError, status: int
) -> None:
    groups.deletion_errors = {("orders", 0): meaning, ("orders", 1): meaning}
    problem = assert_problem(api.delete(at(instance, "etl", "offsets") + "?topic=orders"), status, meaning.code)
    assert problem["detail"] == meaning.detail
    assert not AuditEntry.objects.filter(action="group.offsets_deleted").exists()


def test_a_partial_deletion_of_offsets_is_recorded_as_such(
    api: Api, acting: Actor, instance: Instance, groups: FakeGroups
) -> None:
    groups.deletion_errors = {("orders", 1): NotFound("There is no such partition.")}
    entry = services.delete_offsets(acting=acting, instance=instance, group="etl", topic="orders")
    assert groups.committed(instance.pk, "etl") == {("orders", 1): 50, ("clicks", 0): 3}
    assert list(services.offsets_from_audit(entry.after)) == [("orders", 0)]
    services.undo_offsets(acting=acting, instance=instance, group="etl", entry_id=entry.pk)
    assert ("orders", 0) in groups.committed(instance.pk, "etl")
