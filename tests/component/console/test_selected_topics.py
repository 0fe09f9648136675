"""Actions on several selected topics: one confirmation, and each topic on its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import DeletedTopic, Instance
from tenants.models import AuditEntry, Member
from tests.component.console.fakes import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups

TOPIC, OTHER = "orders.created", "payments"
BOTH = [TOPIC, OTHER]


@pytest.fixture(autouse=True)
def _second_topic(instance: Instance, data_plane: FakeDataPlane, groups: FakeGroups) -> None:
    data_plane.create_topic(instance.pk, OTHER, partitions=1, replication_factor=1, config={}, validate_only=False)
    groups.logs[OTHER, 0] = (0, 27)


def act(client: Client, instance: Instance, act: str, names: list[str], **given: str) -> str:
    at = reverse("page-topics-selected", args=[instance.pk])
    response = client.post(at, {"act": act, "name": names, **given}, follow=True)
    assert response.status_code in (200, 422), response.content
    return unescape(response.content.decode())


def topics(data_plane: FakeDataPlane, instance: Instance) -> set[str]:
    return {topic.name for topic in data_plane.topics(instance.pk)}


def test_the_list_selects_for_those_who_may(
    ida: Client, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    at = reverse("page-topics", args=[instance.pk])
    assert len(re.findall(r'type="checkbox" name="name"', ida.get(at).content.decode())) == 2
    page = browse(join("viewer")).get(at).content.decode()
    assert TOPIC in page
    assert 'type="checkbox" name="name"' not in page


def test_deleting_names_topics_and_amounts_and_asks_once(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    page = act(ida, instance, "delete", BOTH)
    assert "Delete 2 topics with 40 messages, 4 kB?" in page
    assert topics(data_plane, instance) == set(BOTH)
    assert act(ida, instance, "delete", BOTH, typed="something else").count("They can be restored") == 1
    assert topics(data_plane, instance) == set(BOTH)
    page = act(ida, instance, "delete", BOTH, typed=instance.name)
    assert "2 topics are deleted." in page
    assert set(DeletedTopic.objects.values_list("topic", flat=True)) == set(BOTH)
    assert AuditEntry.objects.filter(action="topic.deleted").count() == 2


def test_purging_leaves_out_what_is_compacted_and_says_why(
    ida: Client, instance: Instance, data_plane: FakeDataPlane, groups: FakeGroups
) -> None:
    data_plane.configs[instance.pk, OTHER] = {"cleanup.policy": "compact"}
    page = act(ida, instance, "purge", BOTH)
    assert f"Delete 2,973 messages of {TOPIC}?" in page
    assert "the last message of each key stays" in page
    page = act(ida, instance, "purge", BOTH, typed=instance.name)
    assert "The messages of 1 topic are deleted." in page
    assert "payments: The topic is compacted" in page
    assert groups.logs[TOPIC, 0] == (1_000, 1_000)
    assert groups.logs[OTHER, 0] == (0, 27)


def test_settings_are_shown_first_and_set_for_each_topic(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    given = {"step": "preview", "retention.ms": "3", "retention.ms:unit": "d", "cleanup.policy": "compact,delete"}
    page = act(ida, instance, "config", BOTH, **given)
    assert "Save for 2 topics" in page
    assert "both (compact,delete)" in page
    assert data_plane.configs[instance.pk, OTHER] == {}
    (changes,) = re.findall(r"name=\"changes\" value=\"(\{.*?\})\">", page)
    assert "The settings of 2 topics are saved." in act(ida, instance, "config", BOTH, step="save", changes=changes)
    wanted = {"retention.ms": "259200000", "cleanup.policy": "compact,delete"}
    assert [data_plane.configs[instance.pk, name] for name in BOTH] == [wanted, wanted]


def test_an_empty_value_stays_and_a_wrong_value_is_refused(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    assert "Nothing is changed." in act(ida, instance, "config", BOTH, step="preview")
    page = act(ida, instance, "config", BOTH, step="preview", **{"retention.ms": "much"})
    assert "Enter a number." in page
    for changes in ("", "{}", '{"retention.ms": null}', '{"retention.ms": 5}'):
        act(ida, instance, "config", BOTH, step="save", changes=changes)
    assert data_plane.configs[instance.pk, TOPIC] == {"retention.ms": "86400000"}


def test_nothing_selected_too_many_and_names_of_no_topic_change_nothing(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    assert "Select topics first." in act(ida, instance, "delete", [])
    many = [f"t{number}" for number in range(51)]
    assert "At most 50 topics at once." in act(ida, instance, "delete", many, typed=instance.name)
    act(ida, instance, "delete", ["../x"], typed=instance.name)
    assert "It is not there any more." in act(ida, instance, "delete", ["gone"])
    act(ida, instance, "burn", BOTH, typed=instance.name)
    assert topics(data_plane, instance) == set(BOTH)


def test_viewers_and_strangers_may_not(
    stranger: Member, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance,
    data_plane: FakeDataPlane,
) -> None:  # fmt: skip
    at = reverse("page-topics-selected", args=[instance.pk])
    body = {"act": "delete", "name": BOTH, "typed": instance.name}
    assert browse(join("viewer")).post(at, body).status_code == 403
    assert browse(stranger).post(at, body).status_code == 404
    assert Client(enforce_csrf_checks=True).post(at, body).status_code == 403
    assert topics(data_plane, instance) == set(BOTH)
