"""Pages of messages: hostile content, links to further pages, and the form that sends a message."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser

import pytest
from django.test import Client
from django.urls import reverse

from instances.messages.interfaces import TOO_LARGE, Record, Transaction, Unreadable
from instances.models import Instance, Route
from tenants.errors import Invalid, Unavailable
from tenants.models import Member
from tests.testkit.fake_messages import BEGAN_MS, FakeMessages

TOPIC = "orders.created"
HOSTILE = b"<script>alert(1)</script>\"'&"


def place(instance: Instance, page: str = "page-topic", *more: str) -> str:
    return reverse(page, args=[instance.pk, TOPIC, *more])


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


def test_the_command_that_reads_a_page_uses_the_address_of_the_first_route(ida: Client, instance: Instance) -> None:
    Route.objects.filter(instance=instance).update(endpoints=instance.endpoints)
    Route.objects.create(
        instance=instance, name="a-later-route", security="sasl_plaintext", endpoints={"1": "10.9.9.9:19009"}
    )
    page = shown(ida, place(instance))
    assert f"kcat -C -b {instance.bootstrap_servers} " in page
    assert "10.9.9.9" not in page


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


def test_unreadable_messages_are_named_and_the_rest_is_shown(
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
    response = ida.get(place(instance, "page-topic-messages-file", "jsonl") + "?start=oldest")
    assert response["Content-Disposition"] == f'attachment; filename="{TOPIC}.jsonl"'
    lines = [json.loads(line) for line in response.content.decode().splitlines()]
    assert [line["value"]["data"] for line in lines] == ['{"total": 42}', None, "text"]
    page = shown(ida, f"{place(instance)}?start=offset&offset=1")
    assert f"-t {TOPIC}" in page
    assert "start=offset%3A1" in page


def test_a_page_is_taken_away_as_a_table_without_formulas_and_as_values(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.records[instance.pk, TOPIC] = []
    formulas = (b'=HYPERLINK("http://x")', b"+1", b"-1", b"@SUM(A1)", b"\t=1", b"\r=1", b" =1")
    kept_messages.add(instance.pk, TOPIC, *formulas, b"\xff\x00", None, b"plain", key=b"=1+1")
    kept_messages.records[instance.pk, TOPIC][0].headers = [(b"=h", b"=1")]
    answer = ida.get(place(instance, "page-topic-messages-file", "csv") + "?start=oldest")
    assert answer["Content-Disposition"] == f'attachment; filename="{TOPIC}.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.getvalue().decode(), newline="")))
    assert {row["key"] for row in rows} == {"'=1+1"}
    assert [row["value"] for row in rows[:7]] == [f"'{formula.decode()}" for formula in formulas]
    assert [(row["value"], row["value_format"]) for row in rows[7:]] == [
        ("ff00", "hex"), ("", "null"), ("plain", "text"),
    ]  # fmt: skip
    assert not any(cell.lstrip()[:1] in ("=", "+", "-", "@") for row in rows for cell in row.values() if cell)
    assert rows[0]["headers"] == '[["=h", "=1"]]'
    answer = ida.get(place(instance, "page-topic-messages-file", "zip") + "?start=oldest")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        values = {name: archive.read(name) for name in archive.namelist() if name.endswith(".bin")}
        assert len(archive.read("messages.jsonl").splitlines()) == 10
    assert (values["0-0.bin"], values["0-7.bin"], "0-8.bin" in values) == (formulas[0], b"\xff\x00", False)
    answer = ida.get(place(instance, "page-topic-messages-file", "bin") + "?start=offset&offset=7&partition=0")
    assert (answer.content, answer["Content-Type"]) == (b"\xff\x00", "application/octet-stream")
    assert answer["Content-Disposition"] == f'attachment; filename="{TOPIC}-0-7.bin"'
    none = place(instance, "page-topic-messages-file", "bin") + "?start=offset&offset=8&partition=0"
    assert ida.get(none).status_code == 404


def test_more_filters_are_folded_until_one_is_used(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.add(instance.pk, TOPIC, b"4000123412341234")[-1].headers = [(b"trace-id", b"7f3a")]
    assert '<details class="more-filters wide">' in shown(ida, place(instance))
    for query in ("re=4[0-9]{15}", "header=trace-id:+7f", "key=k&re=^4", "key_re=^k$&re=4$"):
        page = shown(ida, f"{place(instance)}?{query}")
        assert offsets(page) == ["0@3"], query
        assert '<details class="more-filters wide" open>' in page
    assert "No message has “^5”" in shown(ida, f"{place(instance)}?re=^5")
    for query in ("re=(", "key_re=(a{1,500}){1,500}"):
        assert "no regular expression of RE2" in shown(ida, f"{place(instance)}?{query}", 422)


def test_a_message_is_sent_again_as_it_is(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    kept = kept_messages.add(instance.pk, TOPIC, b'{"total": 1}', b"\xff\r\n\x00", key=b"\xfe\n")
    kept[-2].headers, kept[-2].header_count = [(b"trace", "7f \u00fc".encode()), (b"bin", b"\xff"), (b"null", None)], 3
    assert "?partition=0&amp;offset=3" in ida.get(place(instance)).content.decode()
    for offset in (3, 4):
        page = shown(ida, f"{place(instance, 'page-topic-send')}?partition=0&offset={offset}")
        fields = sent_fields(page)
        assert f"Filled with {TOPIC}/0@{offset}" in page
        assert ("2 headers are left out" in page) is (offset == 3)
        ida.post(place(instance, "page-topic-send"), fields)
        again, before = kept_messages.records[instance.pk, TOPIC][-1], kept[offset]
        assert (again.key, again.value, again.partition) == (before.key, before.value, before.partition)
        assert list(again.headers) == list(before.headers)[:1]


def test_the_form_names_the_parts_of_a_message_that_cannot_be_sent_again(
    ida: Client, instance: Instance, join: Callable[[str], Member], browse: Callable[[Member], Client],
    kept_messages: FakeMessages,
) -> None:  # fmt: skip
    kept_messages.add(instance.pk, TOPIC, b"x" * 1_000_001, key=b"")
    at = place(instance, "page-topic-send")
    page = shown(ida, f"{at}?partition=0&offset=3")
    assert "The value is too large for this form." in page
    assert "The key is empty." in page
    assert "There is no message at this place any more." in shown(ida, f"{at}?partition=0&offset=77")
    for query in ("partition=9&offset=0", "partition=0&offset=-1", "offset=1", "partition=x&offset=y"):
        assert "There is no such partition or offset." in shown(ida, f"{at}?{query}")
    ida.post(place(instance, "page-topic-masks"), {"masks": "value .total"})
    developer = browse(join("developer"))
    page = shown(developer, f"{at}?partition=0&offset=0")
    assert "masked from your role" in page
    assert "42" not in sent_fields(page)["value"]
    assert developer.get(place(instance, "page-topic-messages-file", "bin")).status_code == 403
    assert developer.get(place(instance, "page-topic-messages-file", "zip")).status_code == 403
    assert "messages.zip" not in shown(developer, place(instance))


def test_a_message_has_its_commands(ida: Client, instance: Instance) -> None:
    page = shown(ida, f"{place(instance)}?start=offset&offset=1")
    assert f"-t {TOPIC} -p 0 -o 1 -c 1 -e" in page
    assert f"/topics/{TOPIC}/messages?start=offset%3A1&partition=0&limit=1" in page


def sent_fields(page: str) -> dict[str, str]:
    """Fields of the form that sends a message, as a browser would post them."""
    form = HTMLForm()
    form.feed(page.partition('id="several"')[0])  # the second form sends several
    return form.fields


class HTMLForm(HTMLParser):
    """Reads inputs, text areas and selects of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._area = self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "textarea":
            self._area, self.fields[name] = name, ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = value
        elif tag == "input" and name and (given.get("type") != "checkbox" or "checked" in given):
            self.fields[name] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.fields[self._area] = self.fields[self._area].removeprefix("\n").replace("\n", "\r\n")
            self._area = ""
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data


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


def test_several_messages_are_sent_as_lines_and_what_was_saved_is_sent_again(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept = kept_messages.records[instance.pk, TOPIC]
    kept_messages.add(instance.pk, TOPIC, b'{"a": 1}', b"\xff\x00", None, b"text", key=b"\xfe")
    kept[-1].headers = [(b"trace", b"7f3a"), (b"none", None)]
    kept[-1].header_count = 2
    first = len(kept) - 4
    query = f"start=offset&partition=0&offset={first}"
    saved = ida.get(place(instance, "page-topic-messages-file", "jsonl") + f"?{query}").content.decode()
    at = place(instance, "page-topic-send")
    answer = ida.post(at, {"lines": saved, "lines_are": "messages"}, follow=True)
    assert "4 messages are stored." in answer.content.decode()
    assert [(one.key, one.value) for one in kept[-4:]] == [(one.key, one.value) for one in kept[first : first + 4]]
    assert kept[-1].headers == [(b"trace", b"7f3a"), (b"none", None)]
    ida.post(at, {"lines": "one\r\n\r\n{two}\n", "lines_are": "values"})
    assert [(one.key, one.value) for one in kept[-2:]] == [(None, b"one"), (None, b"{two}")]
    new = {"key": "o-1", "value": "ff00", "value_format": "hex", "headers": [{"key": "h", "value": None}]}
    ida.post(at, {"lines": json.dumps(new), "lines_are": "messages"})
    assert (kept[-1].key, kept[-1].value, kept[-1].headers) == (b"o-1", b"\xff\x00", [(b"h", None)])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"value": "x"}\n[1]', "Line 2: It is no JSON object."),
        ("[" * 100_000, "Line 1: It is no JSON object."),
        ('{"value": 7}', "Line 1: value"),
        ('{"value": "x", "surprise": 1}', "Line 1: surprise"),
        ('{"value": "zz", "value_format": "hex"}', "Line 1: value"),
        ('{"value": {"format": "text", "data": "x", "truncated": true}}', "Line 1: A part of it was cut"),
        ('{"value": {"format": "masked", "data": null}}', "Line 1: A part of it was cut"),
        ('{"marker": "commit", "value": {"format": "null", "data": null}}', "Line 1: It is a marker"),
        ('{"value": {"format": ["x"], "data": 7}}', "Line 1"),
        ('{"value": {}, "headers": 7}', "Line 1"),
        ('{"value": {}, "headers": [{"key": "h", "value": 7}]}', "Line 1"),
        ("\n" * 10, "There is no line."),
        ("x\n" * 101, "more than 100 messages"),
    ],
)
def test_lines_that_cannot_be_sent_are_named_and_nothing_is_sent(
    lines: str, words: str, ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    before = len(kept_messages.records[instance.pk, TOPIC])
    kind = "values" if "more than" in words else "messages"
    answer = ida.post(place(instance, "page-topic-send"), {"lines": lines, "lines_are": kind})
    assert answer.status_code == 422
    assert words in unescape(answer.content.decode())
    assert len(kept_messages.records[instance.pk, TOPIC]) == before


def test_messages_that_the_topic_refuses_are_named_among_several(
    ida: Client, instance: Instance, kept_messages: FakeMessages
) -> None:
    kept_messages.refused = Invalid("The message is too large.")
    answer = ida.post(place(instance, "page-topic-send"), {"lines": "a\nb\nc", "lines_are": "values"}, follow=True)
    page = unescape(answer.content.decode())
    assert "1 message is stored." in page
    assert "2 of 3 were not stored. Message 2: The message is too large." in page


def test_a_refused_message_keeps_what_was_typed(ida: Client, instance: Instance, kept_messages: FakeMessages) -> None:
    kept_messages.trouble = Invalid("The message is too large.", code="message_too_large")
    response = ida.post(place(instance, "page-topic-send"), {"value": "typed text"})
    assert response.status_code == 422
    assert "The message is too large." in response.content.decode()
    assert "typed text" in response.content.decode()


def test_a_member_who_may_not_read_messages_sees_the_partitions(
    join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance, kept_messages: FakeMessages
) -> None:
    page = shown(browse(join("viewer")), place(instance))
    assert "First offset" in page
    assert "42" not in re.sub(r"<svg.*?</svg>", "", page).replace("1,042", "")  # no contents
    assert kept_messages.requests == []
