"""Regular expressions of tenants: what they find, which are refused, and what the worst legal one costs."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.messages.limits import FILTER_CHARS_MAX
from instances.messages.patterns import PROGRAM_SIZE_MAX, SEARCHED_BYTES_MAX, Pattern, WrongPattern
from tests.testkit import depth

# Much longer than any of them takes; a search without a bound takes minutes.
SEARCH_S_MAX = 1.0
# Legal expressions that keep many of their instructions busy at each byte of a text without order.
WORST = (
    "[ab]*a[ab]{200}c", "(?:[ab]*a[ab]{30}){1,5}c", "(?:a[ab]{1,90}a){1,3}c", "a[ab]{15}a[ab]{100}c",
    "(?:(?:a|b|ab|ba){1,50}){1,3}c", "(?i)(?:\\w\\w?){1,30}!", "(?:.*a){20}[^ab]", "(?:[^x]{1,99}){1,1}y",
)  # fmt: skip
DISORDER = bytes(Random(7).choices(b"ab", k=2 * SEARCHED_BYTES_MAX))


@pytest.mark.parametrize(
    ("text", "raw", "expected"),
    [
        ("4[0-9]{15}", b"card 4000123412341234.", True), ("^o-", b"o-1", True), ("^o-", b"no-1", False),
        ("(?i)GR\u00d6SSE", "gr\u00f6\u00dfe gr\u00f6sse".encode(), True), ("a.c", b"\xffabc\xfe", True),
        ("^$", b"", True), ("\\x00", b"a\x00b", True), ("\ud7ff", b"\xed\xa0\x80", False),
    ],
)  # fmt: skip
def test_an_expression_is_found_in_bytes_of_any_kind(text: str, raw: bytes, expected: bool) -> None:
    assert Pattern(text).is_in(raw) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("harbour of [A-G]alv", "harbour of "), ("4[0-9]{15}", "4"), ("^o-", "o-"), ("ab+c", "ab"), ("ab*cd", "cd"),
        ("ab{0,2}", "a"), ("a{2}bb", "bb"), ("x(?:a|b)cd", "cd"), ("\\[\\.\\d+\\bcd", "[."), ('[^"]abc', "abc"),
        ("[\\]x]yz", "yz"), ("a|b", ""), ("(?i)ab", ""), ("(?:a(?i)b)c", ""), ("[[:alpha:]]ab", ""), ("\u00e9", ""),
        ("\\x61b", ""), ("\\Qa\\E", ""),
    ],
)  # fmt: skip
def test_the_longest_text_that_all_matches_have_is_known_for_simple_expressions(text: str, expected: str) -> None:
    assert Pattern(text).literal == expected.encode()


PIECES = st.lists(
    st.sampled_from(
        ["a", "b", "A", "ab", " ", ".", "^", "$", "|", "(", "(?:", ")", "(?i)", "(?i:", "[ab]", "[^a]", "[^", "[", "]",
         "[]a]", "[[:alpha:]]", "\\", "\\.", "\\b", "\\d", "\\x61", "\\Q", "\\E", "*", "+", "?", "{2}", "{0,1}",
         "{,1}", "{", "\u00e9", "-"]
    ),
    max_size=7,
).map("".join)  # fmt: skip


@settings(max_examples=depth.examples(1_000), deadline=None)
@given(text=PIECES, raw=st.text("abAB. -[]{}\u00e91,", max_size=8).map(str.encode))
def test_every_text_in_which_an_expression_is_found_has_its_longest_text(text: str, raw: bytes) -> None:
    try:
        pattern = Pattern(text)
    except WrongPattern:
        return
    assert pattern.literal in raw or not pattern.is_in(raw)


@pytest.mark.parametrize(
    "text", ["(", "a{1,9999}", "(?=a)", "(a)\\1", "(?:a{1,500}){1,2}b{500}", "\\pN{1,500}", "\\C+("]
)
def test_expressions_that_re2_does_not_know_or_that_compile_to_too_much_are_refused(text: str) -> None:
    with pytest.raises(WrongPattern):
        Pattern(text)


@pytest.mark.parametrize("text", WORST)
def test_the_worst_legal_expression_over_a_large_text_ends_soon(text: str) -> None:
    assert len(text) <= FILTER_CHARS_MAX
    pattern = Pattern(text)
    began_s = time.monotonic()
    assert not pattern.is_in(DISORDER)
    assert time.monotonic() - began_s < SEARCH_S_MAX


def test_the_searched_length_follows_from_the_size_of_the_expression() -> None:
    assert Pattern("abc").searched_bytes_max == SEARCHED_BYTES_MAX
    large = Pattern("a" * (PROGRAM_SIZE_MAX // 2))
    assert large.searched_bytes_max < SEARCHED_BYTES_MAX
    text = b" " * large.searched_bytes_max
    assert not large.is_in(text + b"a" * 10_000)
    assert Pattern("a$").is_in(b"b" * (SEARCHED_BYTES_MAX - 1) + b"a")
    assert large.work(10**9) == large.work(large.searched_bytes_max)
