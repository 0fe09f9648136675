"""The pages about messages: what they show of hostile ones, how they lead on, and the form that sends one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.messages.interfaces import TOO_LARGE, Record, Transaction, Unreadable
from instances.models import Instance
from tenants.errors import Invalid, Unavailable
from tenants.models import Member
from tests.testkit.fake_messages import BEGAN_MS, FakeMessages

TOPIC = "orders.created"
HOSTILE = b"<script>alert(1)</script>\"'&"


def place(instance: Instance, page: str = "page-topic") -> str:
    return reverse(page, args=[instance.pk, TOPIC])


def shown(client: Client, at: str, status: int = 200) -> str:
    response = client.get(at)
    assert response.status_code == status, response.content
    return unescape(response.content.decode())


def offsets(page: str) -> list[str]:
    return re.findall(r'data-copy="orders\.created/(\d+@\d+)"', page)


def test_a_topic_opens_with_its_newest_messages(ida: Client, instance: Instance) -> None:
    page = shown(ida, place(instance))
    assert offsets(page) == ["0@2", "0@1", "0@0"]
    assert "null (tombstone)" in page
    assert '<span class="name">"total"</span>: <span class="number">42</span>' in page
    assert "Reading here commits no offset" in page


def test_hostile_bytes_stay_text(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    nested = json.dumps({"<b>": ["</details>", HOSTILE.decode()]}).encode()
    for value in (HOSTILE, nested, b"\xff\xfe\x00", b""):
        kept_messages.add(instance.pk, TOPIC, value, key=HOSTILE)
    kept_messages.records[instance.pk, TOPIC][-1].headers = [(HOSTILE, HOSTILE), (b"\xff", None)]
    raw = ida.get(place(instance)).content.decode()
    assert "<script>alert" not in raw
    assert "<b>" not in raw
    assert raw.count("</details>") == raw.count("<details")
    assert "fffe00" in raw


def test_states_of_transactions_and_markers_are_named(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    states = ("open", "aborted", "committed", None)
    kept_messages.records[instance.pk, TOPIC] = [
        Record(partition=0, offset=at, timestamp_ms=BEGAN_MS, is_append_time=True, key=None, value=b"x",
               transaction=Transaction(producer_id=7, state=state))
        for at, state in enumerate(states)
    ]  # fmt: skip
    for marker in ("commit", "abort", "other"):
        kept = kept_messages.records[instance.pk, TOPIC]
        kept.append(
            Record(partition=0, offset=len(kept), timestamp_ms=BEGAN_MS, is_append_time=False, key=None, value=None,
                   marker=marker)
        )  # fmt: skip
    page = shown(ida, place(instance))
    for words in (
        "transaction open", "aborted: readers of committed messages never see it", "committed",
        "how lies too far behind",
        "a transaction was committed", "a transaction was aborted", "Marker of the cluster", "set by the broker",
    ):  # fmt: skip
        assert words in page
    assert page.count("null (tombstone)") == 0


def test_older_and_newer_lead_back_to_the_same_page(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, TOPIC, *(str(n).encode() for n in range(120)))
    first = shown(ida, place(instance))
    assert 'rel="prev"' not in first
    older = re.search(r'rel="next" href="\?([^"]*)"', first)
    assert older
    second = shown(ida, f"{place(instance)}?{older[1]}")
    assert (offsets(second)[0], offsets(second)[-1]) == ("0@72", "0@23")
    newer = re.search(r'rel="prev" href="\?([^"]*)"', second)
    assert newer
    assert offsets(shown(ida, f"{place(instance)}?{newer[1]}")) == offsets(first)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("start=oldest", ["0@0", "0@1", "0@2"]), ("start=offset&offset=1", ["0@1", "0@2"]), ("q=total", ["0@0"]),
        ("start=newest&show=hex&partition=0", ["0@2", "0@1", "0@0"]),
    ],
)  # fmt: skip
def test_the_form_chooses_what_is_read(query: str, expected: list[str], ida: Client, instance: Instance) -> None:
    assert offsets(shown(ida, f"{place(instance)}?{query}")) == expected


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("start=offset", "Give an offset."), ("start=time", "Give a time."),
        ("start=time&time=yesterday", "valid date"),
        ("partition=7", "Partition"), ("start=time&time=1950-01-01T00:00:00", "Times begin with 1970."),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_said_beside_the_form(query: str, words: str, ida: Client, instance: Instance) -> None:
    assert words in shown(ida, f"{place(instance)}?{query}", 422)


def test_an_empty_topic_says_what_to_do_next(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    kept_messages.records[instance.pk, TOPIC] = []
    page = shown(ida, place(instance))
    assert "No message yet" in page
    assert place(instance, "page-topic-send") in page
    assert "No message has “nothing”" in shown(ida, f"{place(instance)}?q=nothing")


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.unavailable = (1, 2)
    kept_messages.unreadable = (Unreadable(partition=0, offset=7, last_offset=9, reason=TOO_LARGE),)
    page = shown(ida, place(instance))
    assert "No broker leads partition 1, 2" in page
    assert "offsets 7 to 9: this batch inflates to more" in page
    assert offsets(page)
    kept_messages.trouble = Unavailable("No broker of the instance answers at the moment. Nothing is lost.")
    page = shown(ida, place(instance), 503)
    assert "No broker of the instance answers" in page
    assert "Partitions 3" in page


def test_a_page_is_taken_away_as_json_lines(ida: Client, instance: Instance) -> None:
    response = ida.get(place(instance, "page-topic-messages-file") + "?start=oldest")
    assert response["Content-Disposition"] == f'attachment; filename="{TOPIC}.jsonl"'
    lines = [json.loads(line) for line in response.content.decode().splitlines()]
    assert [line["value"]["data"] for line in lines] == ['{"total": 42}', None, "text"]
    page = shown(ida, f"{place(instance)}?start=offset&offset=1")
    assert f"-t {TOPIC}" in page
    assert "start=offset%3A1" in page


def test_a_message_is_sent_by_hand(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    at = place(instance, "page-topic-send")
    form = {
        "key": "o-1",
        "value": '{"a": 1}\r\n',
        "value_format": "json",
        "headers": "trace: 1\r\ntrace: 2",
        "partition": "2",
    }
    response = ida.post(at, form, follow=True)
    assert "orders.created/2@3" in response.content.decode()
    record = kept_messages.records[instance.pk, TOPIC][-1]
    assert (record.key, record.value) == (b"o-1", b'{"a": 1}\n')
    assert list(record.headers) == [(b"trace", b"1"), (b"trace", b"2")]
    ida.post(at, {"key": "o-1", "is_tombstone": "on"})
    assert kept_messages.records[instance.pk, TOPIC][-1].value is None
    ida.post(at, {"value": ""})
    last = kept_messages.records[instance.pk, TOPIC][-1]
    assert (last.key, last.value) == (None, b"")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"value": "{", "value_format": "json"}, "The value does not have this format."),
        ({"headers": "no colon"}, "Write each header as name: value."), ({"partition": "3"}, "valid choice"),
        ({"headers": "\n".join(f"h{n}: 1" for n in range(101))}, "too many headers"),
    ],
)  # fmt: skip
def test_a_wrong_message_is_not_sent(
    form: dict[str, str], words: str, ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    response = ida.post(place(instance, "page-topic-send"), form)
    assert response.status_code == 422
    assert words in unescape(response.content.decode())
    assert len(kept_messages.records[instance.pk, TOPIC]) == 3


def test_a_refused_message_keeps_what_was_typed(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    kept_messages.trouble = Invalid("The message is too large.", code="message_too_large")
    response = ida.post(place(instance, "page-topic-send"), {"value": "typed text"})
    assert response.status_code == 422
    assert "The message is too large." in response.content.decode()
    assert "typed text" in response.content.decode()


def test_who_may_not_read_messages_sees_the_partitions(
    join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance, kept_messages: FakeMessages
) -> None:
    page = shown(browse(join("viewer")), place(instance))
    assert "First offset" in page
    assert "42" not in re.sub(r"<svg.*?</svg>", "", page).replace("1,042", "")  # no contents
    assert kept_messages.requests == []
