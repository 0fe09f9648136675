"""The page of a topic's schemas and masked fields, and what masked messages look like."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from instances.topic_models import TopicMask, TopicSchema
from tenants.models import AuditEntry, Member
from tests.testkit.fake_messages import FakeMessages

TOPIC = "orders.created"
SCHEMA = {
    "format": "avro",
    "part": "value",
    "framing": "confluent",
    "schema_id": "7",
    "message": "",
    "schema": '"long"',
}


def place(instance: Instance, page: str = "page-topic-reading", *more: str) -> str:
    return reverse(page, args=[instance.pk, TOPIC, *more])


def shown(client: Client, at: str, status: int = 200) -> str:
    response = client.get(at)
    assert response.status_code == status, response.content
    return unescape(response.content.decode())


def test_a_schema_is_added_used_and_deleted_after_a_question(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.records[instance.pk, TOPIC] = []
    kept_messages.add(instance.pk, TOPIC, b"\0\0\0\0\x07\x54")
    assert "No schema yet" in shown(ida, place(instance))
    answer = ida.post(place(instance, "page-topic-schema-add"), SCHEMA, follow=True)
    assert "The schema is added." in unescape(answer.content.decode())
    page = shown(ida, place(instance, "page-topic"))
    assert "schema 7" in page
    assert '<span class="record-line mono">42</span>' in page
    row = TopicSchema.objects.get()
    at = place(instance, "page-topic-schema-delete", row.pk)
    assert "Delete the schema?" in unescape(ida.post(at).content.decode())
    assert TopicSchema.objects.exists()
    ida.post(at, {"confirmed": "yes"})
    assert not TopicSchema.objects.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "{"}, "A schema of Avro is JSON."), ({"schema": ""}, "required"),
        ({"message": "Order"}, "Protobuf"), ({"framing": "plain"}, "carry no id"),
        ({"format": "protobuf"}, "Not understood"),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_said_beside_its_field(
    changes: dict[str, str], words: str, ida: Client, instance: Instance
) -> None:
    response = ida.post(place(instance, "page-topic-schema-add"), {**SCHEMA, **changes})
    assert response.status_code == 422
    assert words in unescape(response.content.decode())
    assert not TopicSchema.objects.exists()


def test_masks_are_written_as_lines_and_hold_at_once(
    ida: Client, instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client],
    kept_messages: FakeMessages,
) -> None:  # fmt: skip
    kept_messages.records[instance.pk, TOPIC] = []
    kept_messages.add(instance.pk, TOPIC, b'{"card": "4000-1234", "total": 42}', b"4000-1234", key=b"4000-1234")
    ida.post(place(instance, "page-topic-masks"), {"masks": "value .card\r\n\r\nkey .\r\n"})
    assert sorted(TopicMask.objects.values_list("part", "path")) == [("key", "."), ("value", ".card")]
    assert AuditEntry.objects.filter(action="topic_masks.changed").count() == 1
    developer = browse(join("developer"))
    for query in ("", "?show=hex", "?show=text", "?start=oldest", "?show=base64", "?show=avro", "?q=4000"):
        page = shown(developer, place(instance, "page-topic") + query)
        assert "4000-1234" not in page
        assert "343030302d31323334" not in page
        assert "NDAwMC0xMjM0" not in page
    assert "masked from your role" in shown(developer, place(instance, "page-topic"))
    file = developer.get(place(instance, "page-topic-messages-file", "jsonl") + "?start=oldest").content.decode()
    assert "4000-1234" not in file
    assert "42" in file
    assert "No message has" in shown(developer, place(instance, "page-topic") + "?start=oldest&q=4000-1234")
    assert "4000-1234" in shown(ida, place(instance, "page-topic"))
    reading = shown(developer, place(instance))
    assert "value .card" in reading
    assert "page-topic-masks" not in reading
    assert developer.post(place(instance, "page-topic-masks"), {"masks": ""}).status_code == 403
    assert TopicMask.objects.count() == 2


@pytest.mark.parametrize("lines", ["card", "body .card", "value card", "value .a b", "value " + ".a" * 30])
def test_a_wrong_mask_is_said_and_changes_nothing(lines: str, ida: Client, instance: Instance) -> None:
    response = ida.post(place(instance, "page-topic-masks"), {"masks": lines})
    assert response.status_code == 422
    assert "is no part and path" in unescape(response.content.decode())
    assert not TopicMask.objects.exists()


def test_messages_are_filtered_by_path(ida: Client, instance: Instance) -> None:
    at = place(instance, "page-topic")
    assert "1 message" in shown(ida, f"{at}?start=oldest&jq=.total+%3E+40")
    assert "No message has “.total > 99”" in shown(ida, f"{at}?start=oldest&jq=.total+%3E+99")
    assert "Not understood" in shown(ida, f"{at}?jq=range(9)", 422)
    assert "jq=.total" in shown(ida, f"{at}?start=oldest&jq=.total")


def test_strangers_and_viewers_change_nothing(
    instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client]
) -> None:
    viewer = browse(join("viewer"))
    assert viewer.post(place(instance, "page-topic-schema-add"), SCHEMA).status_code == 403
    assert "Add a schema" not in shown(viewer, place(instance))
    assert not TopicSchema.objects.exists()
