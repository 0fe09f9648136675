"""The page that purges a topic: it shows a plan, asks, and executes exactly that plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from tenants.models import AuditEntry, Member
from tests.component.console.fakes import FakeDataPlane
from tests.testkit.fake_groups import FakeGroups

TOPIC = "orders.created"


def place(instance: Instance) -> str:
    return reverse("page-topic-purge", args=[instance.pk, TOPIC])


def offsets_in(page: str) -> str:
    (value,) = re.findall(r'name="offsets" value="([^"]*)"', page)
    return unescape(value)


def preview(client: Client, instance: Instance, **given: object) -> str:
    response = client.post(place(instance), {"act": "preview", **given})
    assert response.status_code == 200, response.content
    return response.content.decode()


def test_the_question_names_topic_and_amount_and_nothing_has_gone(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    before = dict(groups.logs)
    page = preview(ida, instance, what="all")
    assert f"Delete 2,973 messages of {TOPIC}?" in page
    assert "Nothing brings them back." in page
    assert groups.logs == before


def test_the_shown_messages_are_deleted_though_messages_have_arrived_since(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    agreed = offsets_in(preview(ida, instance, what="all"))
    groups.logs[TOPIC, 0] = (10, 5_000)
    response = ida.post(place(instance), {"act": "apply", "offsets": agreed, "typed": TOPIC}, follow=True)
    assert f"2,973 messages of {TOPIC} are deleted." in response.content.decode()
    assert groups.logs == {(TOPIC, 0): (1_000, 5_000), (TOPIC, 1): (1_001, 1_001), (TOPIC, 2): (1_002, 1_002)}
    assert AuditEntry.objects.get(action="topic.records_deleted").after["messages"] == 2_973


def test_one_partition_before_an_offset(ida: Client, instance: Instance) -> None:
    page = preview(ida, instance, what="offset", partition=1, offset=500)
    assert offsets_in(page) == '{"1": 500}'
    assert f"Delete 490 messages of {TOPIC}?" in page


def test_messages_before_a_time_are_those_before_the_first_as_young(
    ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    groups.offset_by_time = {(TOPIC, index): 20 + index for index in range(3)}
    page = preview(ida, instance, what="time", time="2026-11-28T10:00:00")
    assert offsets_in(page) == '{"0": 20, "1": 21, "2": 22}'


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"what": "offset", "partition": 1, "offset": 1_002}, "Partition 1 ends at offset 1001."),
        ({"what": "offset", "partition": 9, "offset": 1}, "The topic has no partition 9."),
        ({"what": "offset", "partition": 1}, "This is needed."),
        ({"what": "time"}, "This is needed."),
        ({"what": "time", "time": "1969-01-01T00:00"}, "Times begin with 1970."),
    ],
)
def test_an_impossible_purge_is_refused_beside_its_field(
    given: dict[str, object], words: str, ida: Client, instance: Instance
) -> None:
    response = ida.post(place(instance), {"act": "preview", **given})
    assert response.status_code == 422
    assert words in unescape(response.content.decode())


def test_a_compacted_topic_says_why_not(ida: Client, instance: Instance, data_plane: FakeDataPlane) -> None:
    data_plane.configs[instance.pk, TOPIC] = {"cleanup.policy": "compact"}
    response = ida.post(place(instance), {"act": "preview", "what": "all"})
    assert response.status_code == 422
    assert "the last message of each key stays" in response.content.decode()


@pytest.mark.parametrize(
    "given",
    [
        {"typed": "orders", "offsets": '{"0": 900}'},
        {"typed": TOPIC, "offsets": ""},
        {"typed": TOPIC, "offsets": "[]"},
        {"typed": TOPIC, "offsets": '{"0": -1}'},
        {"typed": TOPIC, "offsets": '{"x": 1}'},
        {"typed": TOPIC, "offsets": '{"0": 1e3}'},
        {"typed": TOPIC, "offsets": '{"0": true}'},
        {"typed": TOPIC, "offsets": "{" * 1_000},
    ],
)
def test_nothing_goes_without_the_name_and_a_table(
    given: dict[str, str], ida: Client, instance: Instance, groups: FakeGroups
) -> None:
    before = dict(groups.logs)
    assert ida.post(place(instance), {"act": "apply", **given}).status_code == 302
    assert groups.logs == before


def test_an_offset_that_is_gone_meanwhile_is_reported(ida: Client, instance: Instance) -> None:
    given = {"act": "apply", "offsets": '{"0": 999999}', "typed": TOPIC}
    response = ida.post(place(instance), given, follow=True)
    assert "lies past the end" in response.content.decode()


def test_strangers_find_no_page_and_viewers_may_not(
    stranger: Member, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    body = {"act": "apply", "offsets": '{"0": 900}', "typed": TOPIC}
    assert browse(stranger).post(place(instance), body).status_code == 404
    assert browse(join("viewer")).post(place(instance), body).status_code == 403
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(place(instance), body).status_code == 403
