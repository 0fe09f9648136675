"""The records of `__consumer_offsets`, byte for byte (GRP-24)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.coordinators.groups.formats import (
    GroupKey,
    GroupRecord,
    MemberRecord,
    OffsetKey,
    OffsetValue,
    UnknownFormat,
    UnreadableRecord,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)

MEMBER = MemberRecord("m-1", "i-1", "client", "/10.0.0.1", 60_000, 10_000, b"\x00\x01", b"\x00\x02")
GROUP = GroupRecord("consumer", 3, "range", "m-1", 1_700_000_000_000, (MEMBER,))

texts = st.text(max_size=20)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
members = st.builds(
    MemberRecord,
    texts,
    st.none() | texts,
    texts,
    texts,
    ints,
    ints,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
groups = st.builds(
    GroupRecord, texts, ints, st.none() | texts, st.none() | texts, longs, st.lists(members, max_size=3).map(tuple)
)


def test_the_key_of_an_offset_is_as_kafka_writes_it() -> None:
    assert (
        encode_offset_key("grp", "top", 5).hex() == "0001" + "0003" + b"grp".hex() + "0003" + b"top".hex() + "00000005"
    )


def test_the_key_of_a_group_is_as_kafka_writes_it() -> None:
    assert encode_group_key("grp").hex() == "0002" + "0003" + b"grp".hex()


def test_an_offset_is_as_kafka_writes_it() -> None:
    value = OffsetValue(258, 4, "meta", 1_700_000_000_000)

    assert encode_offset_value(value).hex() == "0003" + "0000000000000102" + "00000004" + "0004" + b"meta".hex() + (
        "0000018bcfe56800"
    )


def test_an_offset_with_an_expiry_is_written_in_the_version_that_has_one() -> None:
    value = OffsetValue(258, -1, "meta", 1_700_000_000_000, 1_700_000_000_001)

    assert encode_offset_value(value).hex() == "0001" + "0000000000000102" + "0004" + b"meta".hex() + (
        "0000018bcfe56800" + "0000018bcfe56801"
    )
    assert read_offset_value(encode_offset_value(value)) == value


def test_a_group_is_as_kafka_writes_it() -> None:
    assert encode_group_value(GROUP).hex() == (
        "0003"
        + ("0008" + b"consumer".hex() + "00000003" + "0005" + b"range".hex() + "0003" + b"m-1".hex())
        + "0000018bcfe56800"
        + "00000001"
        + ("0003" + b"m-1".hex() + "0003" + b"i-1".hex() + "0006" + b"client".hex() + "0009" + b"/10.0.0.1".hex())
        + ("0000ea60" + "00002710" + "00000002" + "0001" + "00000002" + "0002")
    )


def test_a_group_without_members_has_no_protocol_and_no_leader() -> None:
    empty = GroupRecord("consumer", 4, None, None, 7, ())

    assert encode_group_value(empty).hex() == "0003" + "0008" + b"consumer".hex() + "00000004" + "ffffffff" + (
        "0000000000000007" + "00000000"
    )
    assert read_group_value(encode_group_value(empty)) == empty


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("0000" + "0000000000000005" + "00016d" + "0000000000000009", OffsetValue(5, -1, "m", 9)),
        (
            "0001" + "0000000000000005" + "00016d" + "0000000000000009" + "000000000000000a",
            OffsetValue(5, -1, "m", 9, 10),
        ),
        ("0002" + "0000000000000005" + "00016d" + "0000000000000009", OffsetValue(5, -1, "m", 9)),
        ("0003" + "0000000000000005" + "00000002" + "00016d" + "0000000000000009", OffsetValue(5, 2, "m", 9)),
        ("0004" + "0000000000000005" + "00000002" + "026d" + "0000000000000009" + "00", OffsetValue(5, 2, "m", 9)),
        # A tagged field of a later release.
        (
            "0004" + "0000000000000005" + "00000002" + "026d" + "0000000000000009" + "01" + "0003" + "aabbcc",
            OffsetValue(5, 2, "m", 9),
        ),
    ],
)
def test_an_offset_is_read_in_every_version(data: str, value: OffsetValue) -> None:
    assert read_offset_value(bytes.fromhex(data)) == value


@pytest.mark.parametrize("version", range(5))
def test_a_group_is_read_in_every_version(version: int) -> None:
    def text(of: str) -> str:
        return (f"{len(of) + 1:02x}" if version >= 4 else f"{len(of):04x}") + of.encode().hex()

    def blob(of: bytes) -> str:
        return (f"{len(of) + 1:02x}" if version >= 4 else f"{len(of):08x}") + of.hex()

    tags = "00" if version >= 4 else ""
    data = f"{version:04x}" + text("consumer") + "00000003" + text("range") + text("m-1")
    if version >= 2:
        data += f"{1_700_000_000_000:016x}"
    data += ("02" if version >= 4 else "00000001") + text("m-1")
    if version >= 3:
        data += text("i-1")
    data += text("client") + text("/10.0.0.1")
    if version >= 1:
        data += "0000ea60"
    data += "00002710" + blob(b"\x00\x01") + blob(b"\x00\x02") + tags + tags

    read = read_group_value(bytes.fromhex(data))

    assert read == GroupRecord(
        "consumer",
        3,
        "range",
        "m-1",
        1_700_000_000_000 if version >= 2 else -1,
        (
            MEMBER._replace(
                group_instance_id="i-1" if version >= 3 else None,
                # Version 0 has no rebalance time-out; the session time-out applies.
                rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
            ),
        ),
    )


def test_the_older_key_of_an_offset_is_read_too() -> None:
    assert read_key(b"\x00\x00" + encode_offset_key("g", "t", 1)[2:]) == OffsetKey("g", "t", 1)


@pytest.mark.parametrize("version", [-1, 3, 9])
def test_a_key_of_another_kind_is_reported(version: int) -> None:
    with pytest.raises(UnknownFormat, match=f"version {version}"):
        read_key(version.to_bytes(2, "big", signed=True) + b"\x00\x01g")


@pytest.mark.parametrize("read", [read_offset_value, read_group_value])
def test_a_value_of_a_later_version_is_reported(read: object) -> None:
    assert callable(read)
    with pytest.raises(UnknownFormat, match="version 5"):
        read(b"\x00\x05" + bytes(40))


@given(texts, texts, ints)
def test_keys_of_offsets_are_read_as_they_were_written(group: str, topic: str, partition: int) -> None:
    assert read_key(encode_offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)


@given(texts)
def test_keys_of_groups_are_read_as_they_were_written(group: str) -> None:
    assert read_key(encode_group_key(group)) == GroupKey(group)


@given(longs, ints, texts, longs)
def test_offsets_are_read_as_they_were_written(offset: int, epoch: int, metadata: str, at_ms: int) -> None:
    value = OffsetValue(offset, epoch, metadata, at_ms)

    assert read_offset_value(encode_offset_value(value)) == value


@given(groups)
def test_groups_are_read_as_they_were_written(group: GroupRecord) -> None:
    assert read_group_value(encode_group_value(group)) == group


def test_a_record_cut_off_anywhere_is_unreadable() -> None:
    written = [
        (read_key, encode_offset_key("group", "topic", 3)),
        (read_key, encode_group_key("group")),
        (read_offset_value, encode_offset_value(OffsetValue(1, 2, "m", 3))),
        (read_offset_value, encode_offset_value(OffsetValue(1, 2, "m", 3, 4))),
        (read_group_value, encode_group_value(GROUP)),
    ]
    for read, data in written:
        for length in range(len(data)):
            with pytest.raises(UnreadableRecord):
                read(data[:length])
        with pytest.raises(UnreadableRecord):
            read(data + b"\x00")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_key, read_offset_value, read_group_value):
        try:
            read(data)
        except (UnknownFormat, UnreadableRecord):
            continue
