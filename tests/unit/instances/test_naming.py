"""Tenant names and internal names (CKA-15, CKA-16): bounded, valid, injective, and disjoint between instances."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances import naming

INSTANCE = "ins-7k2m9qxa"
TOPIC_LETTERS = string.ascii_letters + string.digits + "._-"

topics = st.text(TOPIC_LETTERS, min_size=1, max_size=249).filter(naming.is_valid_topic_name)
tricky_topics = topics | topics.map(lambda name: f"h.{name}"[:249])
instance_ids = st.text(string.ascii_lowercase + string.digits, min_size=8, max_size=8).map(lambda tail: f"ins-{tail}")


def test_a_short_name_is_readable_inside() -> None:
    assert naming.internal_topic(INSTANCE, "orders") == "ins-7k2m9qxa.orders"
    assert naming.split_internal("ins-7k2m9qxa.orders") == (INSTANCE, "orders")
    assert naming.plain_topic("ins-7k2m9qxa.orders") == "orders"


def test_the_longest_plain_name_fits_exactly_and_one_more_letter_is_hashed() -> None:
    fits = "a" * (249 - len(INSTANCE) - 1)
    assert naming.internal_topic(INSTANCE, fits) == f"{INSTANCE}.{fits}"
    hashed = naming.internal_topic(INSTANCE, fits + "a")
    # 32 bytes are 52 letters of base32 without padding.
    assert hashed.startswith(f"{INSTANCE}.h.") and len(hashed) == len(INSTANCE) + 3 + 52
    assert naming.plain_topic(hashed) is None


def test_a_name_that_looks_hashed_is_always_hashed() -> None:
    lookalike = naming.internal_topic(INSTANCE, "a" * 249).removeprefix(f"{INSTANCE}.")
    assert naming.is_hashed(lookalike, INSTANCE)
    assert naming.internal_topic(INSTANCE, lookalike) != naming.internal_topic(INSTANCE, "a" * 249)


def test_the_hash_is_that_of_the_specification() -> None:
    """The hash is base32(sha256("h.x")), lower case, without padding."""
    assert naming.internal_topic(INSTANCE, "h.x") == f"{INSTANCE}.h.{HASH_OF_H_X}"


HASH_OF_H_X = "vuqzder2sqmyo3osvm7z6zpgeql5s76gd5iwctnod2374pdyvzwa"


@given(instance_ids, tricky_topics)
def test_internal_names_are_valid_kafka_names_of_their_instance(instance_id: str, topic: str) -> None:
    internal = naming.internal_topic(instance_id, topic)
    assert naming.is_valid_topic_name(internal)
    assert naming.split_internal(internal)[0] == instance_id
    plain = naming.plain_topic(internal)
    assert plain == (None if naming.is_hashed(topic, instance_id) else topic)


@given(st.tuples(instance_ids, tricky_topics), st.tuples(instance_ids, tricky_topics))
def test_different_topics_never_share_an_internal_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    if one != other:
        assert naming.internal_topic(*one) != naming.internal_topic(*other)


@given(instance_ids, instance_ids, st.text(max_size=300))
def test_scoped_ids_come_back_to_their_owner_and_to_nobody_else(owner: str, other: str, name: str) -> None:
    """CKA-16: groups and transactional ids; any text of any length."""
    internal = naming.internal_scoped(owner, name)
    assert naming.plain_scoped(owner, internal) == name
    if other != owner:
        assert naming.plain_scoped(other, internal) is None


@pytest.mark.parametrize(
    "bad", ["", "ins-", "ins-7K2M9QXA", "ins-7k2m9qx", "ins-7k2m9qxa.", "ins-7k2m9qxa\n", "orders"]
)
def test_an_invalid_instance_id_gives_no_name(bad: str) -> None:
    with pytest.raises(ValueError, match="instance id"):
        naming.internal_topic(bad, "orders")
    with pytest.raises(ValueError, match="instance id"):
        naming.internal_scoped(bad, "orders")


@pytest.mark.parametrize("name", ["__usage", "__consumer_offsets", "orders", "a.b", "ins-7k2m9qxa", "ins-7k2m9qxa."])
def test_names_of_the_cluster_belong_to_no_instance(name: str) -> None:
    assert naming.split_internal(name) == (None, name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\n"])
def test_names_kafka_refuses_are_refused(name: str) -> None:
    """CTL-18."""
    assert not naming.is_valid_topic_name(name)


def test_dots_and_underscores_collide() -> None:
    assert naming.collision_key("a.b_c") == naming.collision_key("a_b.c") != naming.collision_key("a-b-c")
