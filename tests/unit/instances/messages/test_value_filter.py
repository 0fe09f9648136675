"""Filters by path: what they find, what they refuse, and what a hostile one may cost."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.messages import exact_json, value_paths
from instances.messages.exact_json import NotJson
from instances.messages.value_filter import PROGRAM_CHARS_MAX, ValueFilter, WrongFilter
from tests.testkit import depth

ORDER = exact_json.parse(
    '{"total": 100.50, "id": 9007199254740993, "state": "paid", "none": null, "flags": [true, false],'
    ' "items": [{"sku": "A-1", "count": 2}, {"sku": "B", "count": 10}], "a b": 1, "huge": 1e999999999}'
)
VARIABLES = {
    "key": "o-1", "headers": exact_json.parse('{"trace": "7f3a"}'), "partition": exact_json.ExactNumber("3"),
    "offset": exact_json.ExactNumber("12"), "timestamp": exact_json.ExactNumber("1790000000000"),
}  # fmt: skip


def matches(program: str, value: Any = ORDER) -> bool:
    return ValueFilter(program).matches(value, VARIABLES)


@pytest.mark.parametrize(
    "program",
    [
        '.total > 100 and .state == "paid"', ".total == 100.5", ".id == 9007199254740993", ".items[1].count >= 10",
        '.items[] | select(.sku | startswith("A-")) | .count == 2', '.items[].sku == "B"', ".items | length == 2",
        '.["a b"] == 1', "(.missing | not) and (.none | not)", '. | has("state")', '.state | contains("ai")',
        '.state | endswith("id")', '.state | test("^p.*d$")', '$key == "o-1"', '$headers.trace | test("^7f")',
        "$partition == 3 and $offset < 13 and $timestamp > 1.7e12", ".state != 1", "false or true", ".flags[0]",
        ".huge > 1", ".none == null", "  .state  ", ".[] == 1", 'select(.state == "paid") | .total',
    ],
)  # fmt: skip
def test_a_filter_finds_what_jq_would_find(program: str) -> None:
    assert matches(program)


@pytest.mark.parametrize(
    "program",
    [
        ".id == 9007199254740992", ".total > 100.50", ".missing", ".none", ".flags[1]", ".state > 1", ".total > \"a\"",
        '.state | has("x")', ".state.inner", ".total[0]", ".items[7]", '.total | contains("1")', "not", "null",
        ".items == .items", '$headers.none == "x"', ".state == 5 or .total < 1",
    ],
)  # fmt: skip
def test_another_shape_or_kind_than_the_filter_names_does_not_match(program: str) -> None:
    assert not matches(program)


@pytest.mark.parametrize(
    "program",
    [
        "", "def f: f; f", "range(1e18)", "recurse", "..", "[.[]]", ".a = 1", ".a + 1", "while(true; .)", "repeat(.)",
        "input", "env", "$__loc__", "$ENV", ".a ==", "(.a", ".a)", "test(.a)", '.a | test("(")', '.a | test("\\\\p")',
        "{}", "reduce . as $x (0; 1)", "." * 5, "has(1)", 'contains("a"', "(" * 21 + "." + ")" * 21, '"open',
        "x" * (PROGRAM_CHARS_MAX + 1), ".a[99999999]", "." + ".a" * 21, "1" * 401,
    ],
)  # fmt: skip
def test_an_invalid_filter_is_refused_with_a_reason(program: str) -> None:
    with pytest.raises(WrongFilter) as refusal:
        ValueFilter(program)
    assert 10 < len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    "program",
    [
        ".[] == .[]", " | ".join([".[]"] * 80), ".[] | select($key | contains(\"b\"))",
        " or ".join(["(.[]==2)"] * 40), "(" * 19 + ".[]" + " == .[])" * 19, ".[] | $headers.trace",
        '.[] | select($key | test("(a|a)*b"))', ".[] | $key == $key and false",
    ],
)  # fmt: skip
def test_the_costliest_filter_ends_in_a_fraction_of_a_page(program: str) -> None:
    value = [exact_json.ExactNumber("1")] * 300_000
    variables = {"key": "a" * 1_000_000, "headers": exact_json.Members([("h", "x")] * 100_000 + [("trace", "y")])}
    run = ValueFilter(program)
    begun_s = time.process_time()
    run.matches(value, variables)
    assert time.process_time() - begun_s < 0.5


def test_a_value_that_is_nested_beyond_reason_does_not_match() -> None:
    with pytest.raises(NotJson):
        exact_json.parse("[" * 100_000 + "]" * 100_000)
    deep = exact_json.parse("[" * 700 + "]" * 700)
    assert not matches(".[][][][][][] == 1", deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back_as_it_was_written(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(exact_json.dump(exact_json.parse(text))) == value


WORDS = st.sampled_from(["a", "b", "paid", 'q"', "ü", "\\", "/"])
QUOTED = WORDS.map(value_paths.quote)
STEPS = st.sampled_from(["[]", "[0]"]) | QUOTED.map(lambda name: f"[{name}]")
PATHS = st.just(".") | st.lists(STEPS, min_size=1, max_size=3).map(lambda steps: "." + "".join(steps))
VARIABLE_PATHS = st.sampled_from(["$key", "$headers.a", "$partition", "$offset"])
TERMS = (
    PATHS | VARIABLE_PATHS | QUOTED | st.sampled_from(["null", "true", "false", "12", "1.50", "length", "not"])
    | st.builds("{}({})".format, st.sampled_from(["has", "contains", "startswith", "endswith", "test"]),
                st.sampled_from(['"a"', '"paid"', '"ü"', '"pai"', '"a|b"', '"^pa+id"']))
)  # fmt: skip
EXPRESSIONS = st.recursive(
    TERMS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner)
        | st.builds("({} {} {})".format, inner, st.sampled_from(["|", "and", "or"]), inner)
        | st.builds("select({})".format, inner)
    ),
    max_leaves=7,
)
LEAVES = st.none() | st.booleans() | st.integers(0, 12) | WORDS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


@settings(max_examples=depth.examples(2_000), deadline=None)
@given(EXPRESSIONS, VALUES | st.just("plain"), LEAVES, st.booleans())
def test_every_message_that_a_filter_finds_has_its_texts(program: str, value: Any, key: Any, is_escaped: bool) -> None:
    run = ValueFilter(program)
    raw, raw_key = (json.dumps(part, ensure_ascii=is_escaped).encode() for part in (value, key))
    variables = {**VARIABLES, "key": exact_json.parse(raw_key.decode()), "headers": exact_json.Members([("a", "paid")])}
    if run.matches(exact_json.parse(raw.decode()), variables):
        assert all(any(text in raw or text in raw_key for text in texts) for texts in run.literals), run.literals


@pytest.mark.parametrize(
    ("program", "texts"),
    [
        ('.state == "refused"', ["refused", "state"]), (".total > 100", ["total"]), ('$key == "o-1"', ["o-1"]),
        ('.a.b | contains("xy")', ["a", "b", "xy"]), ('.a | test("refused[0-9]+")', ["a", "refused"]),
        ('.items[] | select(.sku | startswith("A-")) | .count == 2', ["A-", "count", "items", "sku"]),
        ('.a == "x" or .b == "yy"', [("x", "yy")]), (".a != 1", []), (".a == null", []), (".a | not", []), (".", []),
        (".a | length > 3", []), ('$headers.a == "ff"', []), (".a == .b", []), ('"a" | contains("a")', []),
        ('.a == "x/y"', ["a", "x/y"]), (".a | $key", []), (".a or true", []), ("$partition == 3", []),
    ],
)  # fmt: skip
def test_the_texts_of_a_filter_are_those_without_which_nothing_matches(program: str, texts: list[Any]) -> None:
    expected = [(texts_of,) if isinstance(texts_of, str) else texts_of for texts_of in texts]
    known = [tuple(text.decode() for text in found) for found in ValueFilter(program).literals]
    assert sorted(known) == sorted(
        (*alternatives, "\\" if "/" in alternatives[0] else "\\u") for alternatives in expected
    )


@given(st.text(alphabet='.[]()|"\\$ abcdorntseltc=<>!0123456789-', max_size=40), JSON)
def test_any_text_is_refused_or_answers(program: str, value: Any) -> None:
    try:
        run = ValueFilter(program)
    except WrongFilter:
        return
    assert run.matches(exact_json.parse(json.dumps(value)), VARIABLES) in (True, False)
