"""The cache's serializer restores registered classes, and neither writes nor reads any others."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.monitoring.observe import BrokerAnswers
from config.cache import KEY_CHARS_MAX, JsonSerializer, bounded_key
from instances.groups.interfaces import (
    CommittedOffset,
    GroupDescription,
    GroupList,
    GroupListing,
    GroupMember,
    GroupSummary,
)
from instances.interfaces import BrokerUnresponsive
from tenants import cached_values
from tenants.errors import Message

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
keys = st.text() | st.integers() | st.tuples(st.text(), st.integers())
instants = st.datetimes(timezones=st.just(UTC))
values = st.recursive(
    scalars | instants | st.frozensets(st.text()),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner),
    max_leaves=20,
)

GROUP = GroupSummary(
    description=GroupDescription(
        id="g",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        coordinator=1,
        members=(GroupMember(id="m", client_id="c", host="h", instance_id=None, assignment=(("t", 0),)),),
    ),
    offsets=(CommittedOffset(topic="t", partition=0, offset=5, metadata="~m"),),
)


@given(value=values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    made = JsonSerializer().dumps(value)
    assert JsonSerializer().loads(str(made).encode() if isinstance(made, int) else made) == value


@pytest.mark.parametrize("why", [3, "x", Message("broker %(id)s does not answer", id=3)])
def test_a_message_keeps_its_id_and_its_values(why: object) -> None:
    message = Message("Not at the moment: %(why)s.", why=why)
    result = cached_values.loads(cached_values.dumps({"trouble": message}))["trouble"]
    assert isinstance(result, Message)
    assert (result, result.msgid, result.values) == (message, message.msgid, message.values)


@pytest.mark.parametrize(
    "value",
    [
        GROUP,
        GroupList(
            groups=(GroupListing(id="g", protocol_type="consumer", state="Empty", coordinator=2),),
            silent=(BrokerUnresponsive(broker_id=3, reason="does not answer"),),
        ),
        BrokerAnswers(bodies={1: {"ready": True}}, silent=(), queried_at=datetime(2026, 1, 2, tzinfo=UTC)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_cached_value_comes_back_as_it_was(value: Any) -> None:
    assert cached_values.loads(cached_values.dumps(value)) == value


class Planted:
    """A class that creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.file,))


def test_a_pickle_in_the_cache_is_not_there_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "made"
    with pytest.raises(cached_values.UnreadableValue):
        JsonSerializer().loads(pickle.dumps(Planted(file)))
    assert not file.exists()


def test_an_object_is_only_read_as_a_class_that_was_declared() -> None:
    with pytest.raises(cached_values.UnreadableValue):
        cached_values.loads(json.dumps({"~o": ["Popen", ["true"]]}).encode())
    with pytest.raises(cached_values.UnreadableValue, match="ValueError"):
        cached_values.loads(json.dumps({"~o": ["BrokerUnresponsive", 1]}).encode())  # of another version


def test_an_undeclared_type_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(cached_values.NotCacheable, match="Planted cannot be kept"):
        cached_values.dumps([Planted(tmp_path)])
    with pytest.raises(cached_values.NotCacheable):
        cached_values.dumps(float("inf"))


def test_a_value_beyond_the_limit_cannot_be_kept() -> None:
    with pytest.raises(cached_values.ValueTooLarge):
        cached_values.dumps("x" * cached_values.CACHED_VALUE_BYTES_MAX)
    assert cached_values.dumps("x" * (cached_values.CACHED_VALUE_BYTES_MAX - 2))


def test_the_largest_group_that_is_described_can_be_kept() -> None:
    offsets = tuple(CommittedOffset(topic="t" * 249, partition=index, offset=2**60) for index in range(10_000))
    assert cached_values.dumps(GroupSummary(description=None, offsets=offsets))


@given(key=st.text(max_size=2 * KEY_CHARS_MAX))
def test_a_key_has_a_largest_length_whatever_it_names(key: str) -> None:
    made = bounded_key(key, "penstock", 2)
    assert len(made) <= KEY_CHARS_MAX
    assert made.startswith("penstock:2:")
    assert made != bounded_key(f"{key}x", "penstock", 2)
