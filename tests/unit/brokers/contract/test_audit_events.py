"""Audit events: client-chosen text has a bounded length, and an encoded event decodes to itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.audit import (
    CUT,
    CUT_MARK,
    EVENT_BYTES_MAX,
    ITEMS_MAX,
    TEXT_CHARS_MAX,
    UNKNOWN,
    VALUES_MAX,
    AuditEvent,
    AuditItem,
    cut_values,
)

ITEM = AuditItem(action="topic.created", kind="topic", name="orders", after={"partitions": 3})
EVENT = AuditEvent(
    id="0123456789abcdef",
    broker_id=1,
    instance_id="ins-aaaaaaaa",
    at_ms=1_000,
    until_ms=2_000,
    user="reader",
    address="10.0.0.9",
    client_id="tool",
    route="default",
    items=(ITEM, replace(ITEM, name="other", outcome=UNKNOWN, before={"partitions": 1})),
    more=4,
    failed=2,
    requests=3,
)
# Bytes of an event apart from its items.
HEAD_BYTES_MAX = 4 * 1024


def test_an_event_is_read_back_as_it_was_written() -> None:
    assert AuditEvent.from_json(EVENT.to_json()) == EVENT


def test_fields_of_later_versions_are_ignored() -> None:
    body = json.loads(EVENT.to_json())
    body["later"] = body["items"][0]["later"] = {"anything": 1}
    assert AuditEvent.from_json(json.dumps(body).encode()) == EVENT


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{}", b'{"v":2}', b"\xff", b'{"v":1,"items":3}'])
def test_an_invalid_event_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):
        AuditEvent.from_json(raw)


def test_items_beyond_the_limit_are_counted() -> None:
    event = AuditEvent.from_json(replace(EVENT, items=(ITEM,) * (ITEMS_MAX + 7), more=1).to_json())
    assert (len(event.items), event.more) == (ITEMS_MAX, 8)


@given(
    st.lists(st.text(max_size=2_000), min_size=1, max_size=120),
    st.dictionaries(st.text(max_size=400), st.text(max_size=2_000), max_size=80),
    st.text(max_size=2_000),
)
def test_no_event_is_larger_than_it_may_be(names: list[str], values: dict[str, str], client_id: str) -> None:
    items = tuple(replace(ITEM, name=name, before=values) for name in names)
    raw = replace(EVENT, items=items, client_id=client_id, more=0).to_json()
    assert len(raw) <= EVENT_BYTES_MAX + HEAD_BYTES_MAX
    event = AuditEvent.from_json(raw)
    assert len(event.items) + event.more == len(items)


def test_long_texts_and_long_lists_are_cut_with_a_mark() -> None:
    values = cut_values({"a": "x" * 1_000, **{f"k{n}": n for n in range(100)}})
    assert values is not None
    assert values["a"] == "x" * TEXT_CHARS_MAX + CUT_MARK
    assert len(values) == VALUES_MAX + 1
    assert values[CUT_MARK] == 101 - VALUES_MAX


def test_an_item_that_is_too_large_keeps_its_name_and_says_so() -> None:
    large = replace(ITEM, before={f"key-{n}": "x" * 250 for n in range(50)})
    (item,) = AuditEvent.from_json(replace(EVENT, items=(large,)).to_json()).items
    assert (item.name, item.before, item.after) == ("orders", CUT, CUT)
