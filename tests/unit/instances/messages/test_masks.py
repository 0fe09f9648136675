"""Masked fields: paths, what is hidden, and that no way of reading shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import content, exact_json, limits, value_paths
from instances.messages.interfaces import Record
from instances.messages.masks import HIDDEN, VALUE, Mask, Masks
from instances.messages.record_filter import FilterTexts, RecordFilter
from instances.messages.rendering import Renderer
from instances.messages.schemas.sources import NoSchemas
from instances.messages.value_filter import ValueFilter
from instances.messages.value_paths import WrongPath

SECRET = "4000-1234"


def masks(*lines: str) -> Masks:
    return Masks(Mask(part, value_paths.parse(path)) for part, _, path in (line.partition(" ") for line in lines))


def masked(path: str, text: str) -> Any:
    return json.loads(exact_json.dump(masks(f"value {path}").apply(VALUE, exact_json.parse(text))))


def record(value: bytes | None, key: bytes | None = b"k", headers: Any = ()) -> Record:
    return Record(
        partition=0, offset=0, timestamp_ms=0, is_append_time=False, key=key, value=value, headers=headers
    )  # fmt: skip


def renderer(how: str = content.AUTO, *lines: str) -> Renderer:
    return Renderer(NoSchemas(), masks(*lines), how, limits.SHOWN_BYTES_MAX)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (".card", '{"card": 1, "b": 2}', {"card": HIDDEN, "b": 2}),
        (".card.number", '{"card": {"number": 1, "x": 2}}', {"card": {"number": HIDDEN, "x": 2}}),
        (".items[].price", '{"items": [{"price": 1, "n": 2}]}', {"items": [{"price": HIDDEN, "n": 2}]}),
        (".items.price", '{"items": [{"price": 1}, {"price": 2}]}', {"items": [{"price": HIDDEN}] * 2}),
        (".[]", '{"a": 1, "b": [2]}', {"a": HIDDEN, "b": HIDDEN}),
        (".rows[0]", '{"rows": [1, 2]}', {"rows": [HIDDEN, 2]}),
        (".card.number", '{"card": "4000"}', {"card": HIDDEN}),
        (".card.number", '{"card": ["4000", {"number": 1}]}', {"card": [HIDDEN, {"number": HIDDEN}]}),
        (".card", '{"c": null, "card": null}', {"c": None, "card": None}),
        (".", '{"a": 1}', HIDDEN),
        (".a", '"4000"', HIDDEN),
        (".card", '{"\\u0063ard": 5}', {"card": HIDDEN}),
    ],
)
def test_a_mask_hides_its_field_and_what_stands_in_its_place(path: str, text: str, expected: Any) -> None:
    assert masked(path, text) == expected


def test_each_of_several_members_of_one_name_is_hidden() -> None:
    text = exact_json.dump(masks("value .card").apply(VALUE, exact_json.parse('{"card": 1, "card": 2}')))
    assert text == f'{{"card": "{HIDDEN}", "card": "{HIDDEN}"}}'


@pytest.mark.parametrize("how", content.SHOWN_AS)
@pytest.mark.parametrize(
    "value",
    [
        json.dumps({"card": {"number": SECRET}, "n": 1}).encode(), json.dumps({"card": SECRET}).encode(),
        f'{{"card": {{"number": "{SECRET}"'.encode(), SECRET.encode(), b"\xff" + SECRET.encode(),
        ('{"card": {"number": "' + SECRET + '"}, "x": "' + "y" * 1_000_000 + '"}').encode(),
        ('[' * 2_000 + '"' + SECRET + '"' + ']' * 2_000).encode(),
        ('{"a":' * 500 + '"' + SECRET + '"' + "}" * 500).encode(),
        json.dumps([{"card": {"number": SECRET}}]).encode(), f'"{SECRET}"'.encode(),
    ],
)  # fmt: skip
def test_no_format_shows_a_masked_field(how: str, value: bytes) -> None:
    shown = renderer(how, "value .card.number", "value .a", "key .", "header .auth").show(
        record(value, SECRET.encode(), [(b"auth", SECRET.encode()), (b"trace", b"7")])
    )
    everything = f"{shown.key.data} {shown.value.data} {[held.data for _, held in shown.headers]}"
    for spelled in (SECRET, SECRET.encode().hex(), "NDAwMC0xMjM0", "QwMDAtMTIzN", "0MDAwLTEyMz"):
        assert spelled not in everything
    assert shown.value.is_masked
    assert shown.key.is_masked
    assert shown.headers[1][1].data is not None


@given(st.text(min_size=1, max_size=6), st.sampled_from([f"value .card.{n}" for n in ("number", "cvc")]))
def test_filters_find_nothing_that_is_not_shown(words: str, line: str) -> None:
    """Two messages that differ in a masked field alone are found or not found together."""
    name = line.rpartition(".")[2]
    with_words, without = ({"card": {name: value}, "n": 1} for value in (words, "zzzzzzzz"))
    reader = renderer(content.AUTO, line)
    for wanted in (FilterTexts(contains=words), FilterTexts(matches=re2.escape(words))):
        accepts = RecordFilter(wanted).accepts
        found = [accepts(reader, record(json.dumps(value).encode())) for value in (with_words, without)]
        assert found[0] == found[1]
    program = ValueFilter(f".card.{name} | startswith({value_paths.quote('x')})")
    values = [reader.filtered_value(record(json.dumps(value).encode())) for value in (with_words, without)]
    assert program.matches(values[0], {}) == program.matches(values[1], {})
    assert values[0] == values[1]


def test_filters_see_neither_masked_keys_nor_masked_headers() -> None:
    reader = renderer(content.AUTO, "key .id", "header .auth")
    variables = reader.variables(record(b"1", b'{"id": "4000"}', [(b"auth", b"4000"), (b"trace", b"7")]))
    assert variables["key"] == [("id", HIDDEN)]
    assert variables["headers"] == [("auth", None), ("trace", "7")]
    for wanted in (FilterTexts(contains="4000"), FilterTexts(key_contains="4000"), FilterTexts(matches="[0-9]{4}"),
                   FilterTexts(key_matches="[0-9]{4}"), FilterTexts(header_contains="4000"),
                   FilterTexts(header_contains="auth: 4")):  # fmt: skip
        for key in (b'{"id": "4000"}', b"4000"):
            assert not RecordFilter(wanted).accepts(reader, record(b"1", key, [(b"auth", b"4000"), (b"trace", b"7")]))
    seen = record(b"1", b'{"id": "4000", "a": 1}', [(b"auth", b"4000"), (b"trace", b"7")])
    for wanted in (FilterTexts(key_contains='"a": 1'), FilterTexts(key_matches='"a": [0-9]'),
                   FilterTexts(header_contains="trace: 7"), FilterTexts(header_contains="auth: ")):  # fmt: skip
        assert RecordFilter(wanted).accepts(reader, seen)


def test_parts_without_masks_are_shown_as_they_are() -> None:
    shown = renderer(content.AUTO, "value .card").show(record(None, b"4000"))
    assert (shown.key.data, shown.key.is_masked, shown.value.format) == ("4000", False, content.NULL)
    assert renderer().show(record(b'{"a":  1.50}')).value.data == '{"a":  1.50}'


@pytest.mark.parametrize(
    "text", ["", "card", "..", ".a.", ".a b", "$.card", ".[", ".a[x]", '.["a', ".a" * 21, ".[1234567]"]
)
def test_an_invalid_path_is_refused(text: str) -> None:
    with pytest.raises(WrongPath):
        value_paths.parse(text)


@given(st.lists(st.text(min_size=1, max_size=8).filter(str.isprintable) | st.integers(0, 99), max_size=6))
def test_a_path_is_written_as_it_is_read(steps: list[Any]) -> None:
    path = value_paths.Path(tuple(steps))
    assert value_paths.parse(str(path)) == path
