"""Several messages from lines of text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from instances.views.sent_lines import MESSAGES, VALUES, messages_of

# Characters at which `str.splitlines` would split as well.
BREAKS = "\u2028\u2029\x85\x0b\x0c\x1c"
CHARACTERS = st.sampled_from(BREAKS + "ab{ü") | st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])
LINES = st.lists(st.text(CHARACTERS).filter(str.strip), min_size=1, max_size=20)


@given(LINES, st.sampled_from(["\n", "\r\n"]))
def test_each_line_is_one_value_whatever_characters_it_has(lines: list[str], end: str) -> None:
    assert [message.value for message in messages_of(end.join(lines), VALUES)] == [line.encode() for line in lines]


@given(LINES)
def test_each_line_of_json_is_one_message_with_unescaped_separators_in_it(lines: list[str]) -> None:
    text = "\n".join(json.dumps({"value": line}, ensure_ascii=False) for line in lines)
    assert [message.value for message in messages_of(text, MESSAGES)] == [line.encode() for line in lines]
