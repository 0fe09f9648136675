"""Words, units and bounds of settings, compared with what brokers accept."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.partitions.topic_config import InvalidTopicConfig, check_value
from brokers.engine.partitions.topic_settings import SETTINGS as KNOWN
from instances.topics.settings import (
    NO_LIMIT_UNIT,
    SETTINGS,
    SettingDescription,
    ValueKind,
    number_and_unit,
    value_of,
)
from instances.topics.value_formatting import format_duration, format_value

NUMBERS = [words for words in SETTINGS.values() if words.units]


def is_accepted(name: str, value: str) -> bool:
    try:
        check_value(name, value)
    except InvalidTopicConfig:
        return False
    return True


@pytest.mark.parametrize("words", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_is_one_that_a_tenant_may_set(words: SettingDescription) -> None:
    assert not KNOWN[words.name].read_only


@pytest.mark.parametrize("words", SETTINGS.values(), ids=SETTINGS)
def test_bounds_and_choices_are_those_of_the_brokers(words: SettingDescription) -> None:
    if words.kind is ValueKind.CHOICE:
        assert all(is_accepted(words.name, value) for value, _words in words.choices)
        return
    assert is_accepted(words.name, str(words.minimum))
    assert is_accepted(words.name, str(words.maximum))
    assert not is_accepted(words.name, str(words.maximum + 1)) or words.maximum >= 2**63 - 1
    if words.no_limit is not None:
        assert is_accepted(words.name, str(words.no_limit))
    elif words.minimum:
        assert not is_accepted(words.name, str(words.minimum - 1))


@given(st.sampled_from(NUMBERS), st.integers(0, 2**63 - 2))
def test_a_value_goes_through_number_and_unit_and_comes_back_the_same(words: SettingDescription, value: int) -> None:
    number, unit = number_and_unit(words, str(value))
    assert unit != NO_LIMIT_UNIT
    assert value_of(words, Decimal(number), unit) == str(value)


@pytest.mark.parametrize("words", [words for words in NUMBERS if words.no_limit is not None])
def test_no_limit_has_words_and_no_number(words: SettingDescription) -> None:
    assert number_and_unit(words, str(words.no_limit)) == ("", NO_LIMIT_UNIT)
    assert format_value(words, str(words.no_limit)) == "no limit"


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (604_800_000, "7 d"),
        (86_400_000, "24 h"),
        (5_400_000, "90 min"),
        (1_500, "1,500 ms"),
        (0, "0 ms"),
        (1_000, "1 s"),
    ],
)
def test_spans_are_shown_in_the_unit_that_fits(milliseconds: int, expected: str) -> None:
    assert format_duration(milliseconds) == expected


def test_a_value_that_is_no_number_is_shown_as_it_is() -> None:
    assert number_and_unit(SETTINGS["retention.ms"], "soon") == ("soon", "ms")
    assert format_value(SETTINGS["retention.ms"], "soon") == "soon"
