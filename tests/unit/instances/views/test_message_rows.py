"""Rows of messages: hostile contents come back from their HTML as they were, and words are translated once."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from django.utils.translation import override
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import content
from instances.messages.content import Content
from instances.messages.interfaces import ABORTED, COMMIT, Record, Transaction
from instances.messages.schemas import sources
from instances.models import Instance
from instances.services import ShownMessage
from instances.views import message_rows
from instances.views.message_rows import MessageRows
from tenants.choices import Scope

TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=120) | st.sampled_from(
    ["</pre><script>alert(1)</script>", "\"' onclick=x &lt; {{ x }} %(n)s", "e\u0301" * 90]
)
FORMATS = st.sampled_from([content.TEXT, content.HEX, content.BASE64])


class Commands:
    """Commands of a row, with the name of the topic in them."""

    def kcat(self, partition: int, offset: int) -> str:
        return f'kcat \'<{partition}>&"{offset}"'

    def curl(self, partition: int, offset: int) -> str:
        return f'curl \'<{partition}>&"{offset}"'


class Parts(HTMLParser):
    """Texts of elements with their attributes, as a browser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.copied: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if given.get("data-copy") is not None:
            self.copied.append(given["data-copy"] or "")
        assert not any(name.startswith("on") for name in given)
        if tag not in ("br", "use"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("br", "use"):
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


def rows(can: frozenset[str] = frozenset({Scope.MESSAGES_WRITE})) -> MessageRows:
    commands: Any = Commands()
    return MessageRows(Instance(pk="ins-aaaaaaaa"), "orders.created", commands, can)


def message(value: Content, key: Content = content.NULL_CONTENT, **changes: Any) -> ShownMessage:
    headers = changes.pop("headers", [])
    fields: dict[str, Any] = {
        "partition": 3, "offset": 12_345, "timestamp_ms": 1_790_000_000_123, "is_append_time": False, "key": None,
        "value": None,
    }  # fmt: skip
    return ShownMessage(record=Record(**{**fields, **changes}), key=key, value=value, headers=headers)


@given(value=TEXTS, key=TEXTS, header=st.tuples(TEXTS, TEXTS), how=FORMATS)
def test_contents_of_any_kind_stay_text(value: str, key: str, header: tuple[str, str], how: str) -> None:
    headers = [(header[0], Content(how, header[1], 9))]
    shown = message(Content(how, value, 9), Content(how, key, 9), headers=headers, header_count=1)
    parts = Parts(rows().html(shown))
    assert parts.texts["pre"] == [value, key]
    commands = [f'{name} \'<3>&"12345"' for name in ("kcat", "curl")]
    assert parts.copied == [value, "orders.created/3@12345", *commands]
    assert parts.texts["dt"][0] == header[0]
    assert parts.texts["dd"][0].removesuffix(" ") == header[1].removesuffix(" ")
    assert not {"script", "img", "iframe"} & set(parts.tags)


def test_words_are_translated_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[str] = []
    monkeypatch.setattr(message_rows, "gettext", lambda text: translated.append(text) or text)
    writer = rows()
    for _ in range(50):
        writer.html(message(Content(content.TEXT, "x", 1), transaction=Transaction(producer_id=1, state=ABORTED)))
    assert len(translated) == len(set(translated))


def test_rows_are_in_the_readers_language() -> None:
    with override("zh-hans"):
        html = rows().html(message(Content(content.NULL, None, 0), marker=COMMIT))
    assert "transaction" not in html
    assert "事务" in html


def test_a_reader_who_may_not_send_has_no_link_to_send_again() -> None:
    shown = message(Content(content.TEXT, "x", 1))
    assert "/send/?partition=3&amp;offset=12345" in rows().html(shown)
    assert "/send/" not in rows(frozenset()).html(shown)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Content(content.MASKED, None, 9, is_masked=True), "Masked from your role"),
        (Content(sources.AVRO, "{}", 9, schema_id=7), "schema 7"),
        (Content(content.TEXT, "x", 2_000_000, truncated=True), "the beginning of 2 MB"),
        (Content(content.HEX, "ff", 1, problem="too_large"), "It is too large to be shown by its schema."),
        (Content(content.HEX, "ff", 1, problem="damaged"), "It does not fit its schema."),
        (Content(content.HEX, "ff", 1, problem="no_schema"), "Add a schema"),
        (Content(content.TEXT, "", 0), "empty"),
        (Content(content.JSON, '{"a": [1.50]}', 13), '<span class="number">1.50</span>'),
    ],
)
def test_a_row_says_what_a_reader_must_know_of_a_value(value: Content, words: str) -> None:
    assert words in rows().html(message(value))
