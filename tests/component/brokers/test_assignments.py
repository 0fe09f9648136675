"""Decoding of group assignments, which are bytes that any client may have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from brokers.dataplane.assignments import decode_assignment

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


def encoded(assigned: dict[str, list[int]], version: int = 1, user_data: bytes = b"") -> bytes:
    kind = ConsumerProtocolAssignment.TopicPartition
    topics = [kind(topic=name, partitions=indexes) for name, indexes in assigned.items()]
    return bytes(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data, version=version).encode())


@given(assigned=st.dictionaries(names, st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=5), max_size=5))
def test_an_assignment_of_any_version_is_decoded(assigned: dict[str, list[int]]) -> None:
    expected = tuple(sorted((topic, index) for topic, indexes in assigned.items() for index in indexes))
    for version in (0, 1, 2, 3):
        assert decode_assignment(encoded(assigned, version, b"anything")) == expected


@given(raw=st.binary(max_size=60))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    assignment = decode_assignment(raw)
    assert assignment is None or all(isinstance(topic, str) and isinstance(index, int) for topic, index in assignment)


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\0\0\0\0", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\2\xff\xfe\0\0\0\0", b"x"]
)
def test_an_invalid_assignment_decodes_to_none(raw: bytes) -> None:
    assert decode_assignment(raw) is None


def test_nothing_assigned_is_not_the_same_as_not_known() -> None:
    assert decode_assignment(b"") == ()
