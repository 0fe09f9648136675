"""Owners of the records of the state topics."""

from __future__ import annotations

from brokers.engine.coordinators.groups.formats import encode_group_key, encode_offset_key
from brokers.engine.coordinators.partitioning import bytes_by_instance, instance_id_of
from brokers.engine.coordinators.result import StateRecord
from brokers.engine.coordinators.transactions.formats import encode_key


def test_keys_of_all_kinds_name_their_instance() -> None:
    assert instance_id_of(encode_offset_key("ins-aaaaaaaa.g", "ins-aaaaaaaa.t", 0)) == "ins-aaaaaaaa"
    assert instance_id_of(encode_group_key("ins-aaaaaaaa.g")) == "ins-aaaaaaaa"
    assert instance_id_of(encode_key("ins-aaaaaaaa.tx")) == "ins-aaaaaaaa"


def test_ids_of_the_clusters_own_have_no_owner() -> None:
    for id in ("", "g", "ins-", "ins-short.g", "ins-aaaaaaaa", "ins-AAAAAAAA.g", "ins-äaaaaaa.g"):
        assert instance_id_of(encode_group_key(id)) is None, id


def test_a_batch_of_one_instance_is_charged_whole() -> None:
    records = [StateRecord(encode_offset_key("ins-aaaaaaaa.g", "t", index), b"v" * 10) for index in range(3)]
    assert bytes_by_instance(records, 1_234) == {"ins-aaaaaaaa": 1_234}


def test_a_batch_of_several_is_divided_by_their_records() -> None:
    first, second = encode_group_key("ins-aaaaaaaa.g"), encode_group_key("ins-bbbbbbbb.g")
    shares = bytes_by_instance(
        [StateRecord(first, b"v" * 100), StateRecord(second, None), StateRecord(first, None)], 500
    )
    assert shares == {"ins-aaaaaaaa": 2 * (12 + len(first)) + 100, "ins-bbbbbbbb": 12 + len(second)}
