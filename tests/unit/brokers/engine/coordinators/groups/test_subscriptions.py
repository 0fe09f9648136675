"""Topics that members read, decoded from their protocol metadata (GRP-28)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from brokers.engine.coordinators.groups.expiry import decode_subscribed_topics, internal_topics
from instances.naming import internal_topic


def subscription(*topics: str, version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    """Encode a subscription as clients do: version, topics, and the fields that a version adds."""
    names = b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in topics)
    return version.to_bytes(2, "big", signed=True) + len(topics).to_bytes(4, "big") + names + rest


@pytest.mark.parametrize("version", range(4))
def test_the_topics_come_first_in_every_version(version: int) -> None:
    assert decode_subscribed_topics([subscription("a", "b", version=version, rest=b"anything")]) == {"a", "b"}


def test_the_topics_of_all_members_count() -> None:
    assert decode_subscribed_topics([subscription("a", "b"), subscription("b", "c"), subscription()]) == {"a", "b", "c"}


def test_without_members_nothing_is_subscribed() -> None:
    assert decode_subscribed_topics([]) == frozenset()


@pytest.mark.parametrize("broken", [b"", b"\x00", b"\x00\x00\x00\x00\x00\x05", b"\x00\x00\xff\xff\xff\xff", b"garbage"])
def test_one_that_cannot_be_read_leaves_the_rest_unknown(broken: bytes) -> None:
    assert decode_subscribed_topics([subscription("a"), broken]) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_topics_or_unknown(data: bytes) -> None:
    result = decode_subscribed_topics([data])

    assert result is None or all(isinstance(name, str) for name in result)


def test_offsets_are_kept_under_the_names_of_the_cluster() -> None:
    long = "t" * 249
    assert internal_topics("ins-aaaaaaaa.g", ["orders", long]) == {
        "ins-aaaaaaaa.orders",
        internal_topic("ins-aaaaaaaa", long),
    }
    assert internal_topics("some-group-of-the-cluster", ["__usage"]) == {"__usage"}


def test_kafka_pythons_words_are_understood() -> None:
    metadata = ConsumerProtocolSubscription(version=3, topics=["orders", "others"], user_data=b"x").encode()

    assert decode_subscribed_topics([metadata]) == {"orders", "others"}
