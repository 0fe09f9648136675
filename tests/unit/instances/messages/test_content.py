"""Keys and values as text: shown exactly, or marked as shortened."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import content
from instances.messages.content import AUTO, BASE64, HEX, JSON, NULL, NULL_CONTENT, TEXT, Unwritable, show, to_bytes

MANY = 1_000_000


def back(shown: content.Content) -> bytes:
    """Returns the bytes that a shown content stands for."""
    data = shown.data or ""
    if shown.format == HEX:
        return bytes.fromhex(data)
    return base64.b64decode(data) if shown.format == BASE64 else data.encode()


AS_BYTES = [how for how in content.SHOWN_AS if how not in content.NUMBERS]


@given(raw=st.binary(max_size=200), how=st.sampled_from(AS_BYTES))
def test_a_value_shown_whole_can_be_turned_back_into_its_bytes(raw: bytes, how: str) -> None:
    shown = show(raw, how, MANY)
    assert back(shown) == raw
    assert (shown.bytes, shown.truncated) == (len(raw), False)


@given(text=st.text(max_size=200), how=st.sampled_from(AS_BYTES), cut=st.integers(0, 60))
def test_a_truncated_value_is_a_beginning_with_the_true_size(text: str, how: str, cut: int) -> None:
    raw = text.encode()
    shown = show(raw, how, cut)
    assert raw.startswith(back(shown))
    assert shown.bytes == len(raw)
    assert shown.truncated == (len(raw) > cut)
    assert not shown.truncated or shown.format != JSON
    assert len(back(shown)) > cut - 4 or not shown.truncated


@given(number=st.integers(-(2**63), 2**63 - 1), length=st.sampled_from((1, 2, 4, 8)))
def test_an_integer_of_kafkas_serializers_is_shown_as_its_number(number: int, length: int) -> None:
    number = (number % 2 ** (8 * length)) - 2 ** (8 * length - 1)
    shown = show(number.to_bytes(length, "big", signed=True), content.INTEGER, MANY)
    assert (shown.format, shown.data, shown.bytes) == (content.INTEGER, str(number), length)


@given(number=st.floats(allow_nan=False))
def test_a_double_is_shown_as_its_number_and_other_lengths_as_they_are(number: float) -> None:
    raw = struct.pack(">d", number)
    assert float(show(raw, content.FLOAT, MANY).data or "") == number
    for how in content.NUMBERS:
        for other in (b"", b"abc", b'{"total": 42}', raw * 2):
            assert show(other, how, MANY) == show(other, AUTO, MANY)


@given(text=st.text(max_size=50), how=st.sampled_from((TEXT, HEX, BASE64)))
def test_a_value_sent_in_a_format_is_stored_as_its_bytes(text: str, how: str) -> None:
    raw = text.encode()
    written = {TEXT: text, HEX: raw.hex(), BASE64: base64.b64encode(raw).decode()}[how]
    assert to_bytes(written, how) == raw


@pytest.mark.parametrize(
    ("raw", "how", "expected"),
    [
        (b'{"a": 1}', AUTO, JSON), (b"[1,2]", AUTO, JSON), (b"42", AUTO, TEXT), (b"42", JSON, JSON), (b"", AUTO, TEXT),
        (b'{"a": NaN}', AUTO, TEXT), (b'{"a"', JSON, TEXT), (b"\xff\xfe", AUTO, HEX), (b"\xff\xfe", TEXT, HEX),
        (b"\xff\xfe", JSON, HEX), (b"a\x00b", AUTO, HEX), (b"a\x00b", TEXT, TEXT), (b"a\tb\r\n", AUTO, TEXT),
        (b"[" * 100_000, AUTO, TEXT), (b'{"n": ' + b"9" * 5_000 + b"}", AUTO, JSON), (b"a", HEX, HEX),
    ],
)  # fmt: skip
def test_the_format_says_what_the_bytes_are(raw: bytes, how: str, expected: str) -> None:
    assert show(raw, how, MANY).format == expected


def test_no_bytes_are_not_empty_bytes() -> None:
    assert show(None, AUTO, 10) == NULL_CONTENT
    assert (NULL_CONTENT.format, NULL_CONTENT.data, NULL_CONTENT.bytes) == (NULL, None, 0)
    assert show(b"", AUTO, 10).data == ""
    assert to_bytes(None, JSON) is None


@pytest.mark.parametrize(
    ("text", "how"),
    [("{", JSON), ("NaN", JSON), ("xy", HEX), ("a", HEX), ("a", BASE64), ("*", BASE64), ("\ud800", TEXT)],
)
def test_a_value_that_does_not_fit_its_format_is_refused(text: str, how: str) -> None:
    with pytest.raises(Unwritable):
        to_bytes(text, how)


def test_json_that_folds_keeps_numbers_and_repeated_names_as_they_are_written() -> None:
    from instances.messages.json_tree import tree

    node = tree('{"n": 12345678901234567890.10, "n": 1e400, "list": [true, null, "ü"], "none": {}}')
    assert node is not None
    assert [(child.name, child.text) for child in node.children] == [
        ("n", "12345678901234567890.10"), ("n", "1e400"), ("list", "3"), ("none", "0"),
    ]  # fmt: skip
    assert [child.text for child in node.children[2].children] == ["true", "null", '"ü"']
    assert tree("[" * 50_000) is None
    assert tree(json.dumps(list(range(10_000)))) is None
    assert tree('{"a": ' * 20 + "1" + "}" * 20) is None
