"""Clients from before format 2: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0 (B.2, B.3, B.6, LOG-29).

Compressors differ in their bytes, so what is read back is written down message by message. The cut entry with which
Apache Kafka fills up an answer that it converted is left out.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import read_records
from brokers.engine.records.message_set import (
    compress_old,
    encode_message,
    is_checksum_valid,
    read_entries,
    read_message,
    unwrap_messages,
)
from tests.differential.batches import GZIP, LZ4, SNAPPY, TIME_MS, ZSTD, batch, compressed, message
from tests.differential.normalise import RULES, normalised
from tests.differential.play import Player
from tests.differential.scripts.produce import FAR_AHEAD_MS, produced

PREFIX = "diff.old"
CODECS = {"nothing": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4}
CLAIM = layout.LOG_APPEND_TIME


def script(player: Player) -> None:
    player.make_topic(f"{PREFIX}.tiny", max_message_bytes="200")
    player.make_topic(f"{PREFIX}.compact", cleanup_policy="compact")
    player.make_topic(f"{PREFIX}.logtime", message_timestamp_type="LogAppendTime")
    player.make_topic(f"{PREFIX}.before", message_timestamp_before_max_ms="1000")
    player.make_topic(f"{PREFIX}.gzip", compression_type="gzip")
    player.make_topic(f"{PREFIX}.isr", min_insync_replicas="2")
    player.make_topic(f"{PREFIX}.batch")
    for version in range(3):
        _produce(player, version)
    for name in ("logtime", "gzip", "compact"):
        _read_back(player, f"{PREFIX}.{name}")
    _fetch(player)
    _list_offsets(player)


def messages(*values: bytes | None, magic: int, first: int = 0, key: bytes | None = b"k") -> bytes:
    """Messages a millisecond apart, with offsets from `first` on."""
    return b"".join(encode_message(magic, first + at, TIME_MS + at, key, value) for at, value in enumerate(values))


def wrapper(inner: bytes | None, *, magic: int, codec: int = GZIP, offset: int = 0, **more: int) -> bytes:
    """One message around `inner`, which is compressed as the format has it."""
    value = None if inner is None else compress_old(codec, inner, magic)
    return wrapping(value, magic=magic, codec=codec, offset=offset, **more)


def wrapping(
    value: bytes | None, *, magic: int, codec: int, offset: int = 0, time_ms: int = TIME_MS, flags: int = 0
) -> bytes:
    return encode_message(magic, offset, time_ms, None, value, codec | flags)


def _produce(player: Player, version: int) -> None:
    topic = f"{PREFIX}.v{version}"
    player.make_topic(topic)

    def ask(what: str, records: bytes | None, *, to: str = topic, silent: bool = False, **more: Any) -> None:
        request = produced(to, records, **more)
        player.ask(f"v{version}: {what}", ApiKey.PRODUCE, version, request, may_be_silent=silent)

    for magic in (0, 1):
        for name, codec in CODECS.items():
            block = messages(b"a" * 40, None, b"c", magic=magic)
            ask(f"format {magic}, {name}", wrapper(block, magic=magic, codec=codec, offset=2) if codec else block)
        _wrong_in_both(ask, magic)
    _resolve_in_1(ask)
    _batches(ask)
    player.tell(ApiKey.PRODUCE, version, produced(topic, message(b"untold"), acks=0))
    ask("after one without answer", message(b"told"))
    _places(ask)
    _topics(ask)
    _read_back(player, topic)


def _wrong_in_both(ask: Any, magic: int) -> None:
    def wrong(what: str, records: bytes, **more: Any) -> None:
        ask(f"format {magic}, {what}", records, **more)

    item = message(b"v", magic=magic)
    other = messages(b"v", magic=1 - magic)
    two = messages(b"a", b"b", magic=magic)
    wrong("wrong crc", message(b"v", magic=magic, crc=1))
    wrong("a right one and a wrong crc", item + message(b"v", magic=magic, crc=1))
    wrong("cut", item[:-1])
    wrong("a cut one after", item + item[:20])
    wrong("eleven bytes", item[:11])
    wrong("too short a size", item[:8] + pack(">i", 13) + item[12:])
    wrong("negative size", item[:8] + pack(">i", -1) + item[12:])
    wrong("the other format after", item + other)
    wrong("a wrapper after", item + wrapper(two, magic=magic, offset=1))
    wrong("two wrappers", wrapper(two, magic=magic, offset=1) * 2)
    wrong("a wrapper of null", wrapper(None, magic=magic))
    wrong("a wrapper of nothing", wrapper(b"", magic=magic))
    wrong("a wrapper of the other format", wrapper(other, magic=magic))
    wrong("a wrapper in a wrapper", wrapper(wrapper(two, magic=magic, offset=1), magic=magic, offset=1))
    wrong("a wrapper with a cut message", wrapper(two[:-1], magic=magic, offset=1))
    wrong("a wrapper with an inner crc", wrapper(two + message(b"v", magic=magic, crc=1), magic=magic, offset=2))
    wrong("gzip that does not inflate", wrapping(b"no gzip at all", magic=magic, codec=GZIP))
    wrong("zstd", wrapping(compressed(ZSTD, two), magic=magic, codec=ZSTD))
    wrong("codec 5", wrapping(two, magic=magic, codec=5))
    wrong("codec 7", wrapping(two, magic=magic, codec=7))
    wrong("lz4 with the other checksum", wrapping(compress_old(LZ4, two, 1 - magic), magic=magic, codec=LZ4, offset=1))
    wrong("snappy in its stream's frame", wrapping(compressed(SNAPPY, two), magic=magic, codec=SNAPPY, offset=1))
    wrong("null key and value", encode_message(magic, 0, TIME_MS, None, None))
    wrong("empty key and value", encode_message(magic, 0, TIME_MS, b"", b""))
    wrong("any offset", encode_message(magic, 77, TIME_MS, b"k", b"v"))
    wrong("all at offset 0", item * 3)
    wrong("any offsets inside", wrapper(messages(b"a", b"b", magic=magic, first=7), magic=magic, offset=8))
    wrong("a wrapper with a key", encode_message(magic, 1, TIME_MS, b"k", compress_old(GZIP, two, magic), GZIP))
    wrong("a wrapper at offset 0", wrapper(two, magic=magic))


def _resolve_in_1(ask: Any) -> None:
    two = messages(b"a", b"b", magic=1)
    ask("format 1, no time", encode_message(1, 0, -1, b"k", b"v"))
    ask("format 1, a time before all time", encode_message(1, 0, -2, b"k", b"v"))
    ask("format 1, a time far ahead", encode_message(1, 0, FAR_AHEAD_MS, b"k", b"v"))
    ask("format 1, log append time asked for", encode_message(1, 0, TIME_MS, b"k", b"v", CLAIM))
    ask("format 1, log append time asked for, no time", encode_message(1, 0, -1, b"k", b"v", CLAIM))
    ask("format 1, log append time on a wrapper", wrapper(two, magic=1, offset=1, time_ms=TIME_MS + 9, flags=CLAIM))
    ask("format 1, offset below the last inside", wrapper(messages(b"a", b"b", magic=1, first=7), magic=1, offset=3))
    ask("format 1, offset above the last inside", wrapper(two, magic=1, offset=50))
    ask("format 1, all inside at offset 0", wrapper(messages(b"a", magic=1) * 3, magic=1, offset=2))


def _batches(ask: Any) -> None:
    ask("a batch", batch(b"a", b"b"))
    ask("a batch in zstd", batch(b"a", b"b", codec=ZSTD), to=f"{PREFIX}.batch")
    ask("two batches", batch(b"a") + batch(b"b"))
    ask("a batch and a message", batch(b"a") + message(b"b"))
    ask("a message and a batch", message(b"a") + batch(b"b"))
    ask("a batch with a wrong crc", batch(b"a", crc=1))
    ask("a cut batch", batch(b"value")[:-3])
    ask("format 3", message(b"v")[:16] + b"\x03" + message(b"v")[17:])
    ask("format -1", message(b"v")[:16] + b"\xff" + message(b"v")[17:])
    ask("empty records", b"")
    ask("null records", None, silent=True)


def _places(ask: Any) -> None:
    for magic in (0, 1):
        item = message(b"v", magic=magic)
        ask(f"format {magic}, acks 2", item, acks=2)
        ask(f"format {magic}, acks 1", item, acks=1)
        ask(f"format {magic}, unknown topic", item, to=f"{PREFIX}.unknown")
        ask(f"format {magic}, bad topic name", item, to="a/b")
        ask(f"format {magic}, unknown partition", item, partition=9)
        ask(f"format {magic}, wrong crc, unknown partition", message(b"v", magic=magic, crc=1), partition=9)
        ask(f"format {magic}, too few replicas", item, to=f"{PREFIX}.isr")
        ask(f"format {magic}, too few replicas, acks 1", item, to=f"{PREFIX}.isr", acks=1)


def _topics(ask: Any) -> None:
    for magic in (0, 1):
        two = messages(b"a", b"b", magic=magic)
        ask(f"format {magic}, too large", message(b"v" * 300, magic=magic), to=f"{PREFIX}.tiny")
        ask(f"format {magic}, large only inside", wrapper(messages(b"v" * 300, magic=magic), magic=magic),
            to=f"{PREFIX}.tiny")  # fmt: skip
        ask(f"format {magic}, large only together", messages(*[b"v" * 50] * 5, magic=magic), to=f"{PREFIX}.tiny")
        ask(f"format {magic}, keys where they are wanted", two, to=f"{PREFIX}.compact")
        ask(f"format {magic}, no key", message(b"v", magic=magic, key=None), to=f"{PREFIX}.compact")
        ask(f"format {magic}, no key inside", wrapper(messages(b"v", magic=magic, key=None), magic=magic),
            to=f"{PREFIX}.compact")  # fmt: skip
        ask(f"format {magic}, a time too far behind", two, to=f"{PREFIX}.before")
        ask(f"format {magic}, log append time", two, to=f"{PREFIX}.logtime")
        ask(f"format {magic}, log append time, wrapped", wrapper(two, magic=magic, offset=1), to=f"{PREFIX}.logtime")
        ask(f"format {magic}, recompressed", two, to=f"{PREFIX}.gzip")
        ask(f"format {magic}, recompressed from lz4", wrapper(two, magic=magic, codec=LZ4, offset=1),
            to=f"{PREFIX}.gzip")  # fmt: skip
    claiming = encode_message(1, 0, TIME_MS, b"k", b"v", CLAIM)
    ask("format 1, log append time asked for and given", claiming, to=f"{PREFIX}.logtime")


def _fetch(player: Player) -> None:
    topic, zstd, forced, fixed = (f"{PREFIX}.{name}" for name in ("read", "zstd", "forced", "fixed"))
    player.make_topic(topic, 2)
    player.make_topic(zstd)
    player.make_topic(forced, compression_type="zstd")
    player.make_topic(fixed, 2, message_downconversion_enable="false")
    # Offsets 0…2, 3…4 gzip, 5…6 snappy, 7…8 lz4, 9 without key, time and value, 10 of 500 bytes.
    for records in (
        batch(b"a", b"b", b"c"),
        *(batch(b"d" * 40, b"e" * 40, codec=codec) for codec in (GZIP, SNAPPY, LZ4)),
        batch(None, key=None, base_time_ms=-1),
        batch(b"f" * 500),
    ):
        player.call(ApiKey.PRODUCE, 9, produced(topic, records))
    for records in (batch(b"a"), batch(b"b", codec=ZSTD), batch(b"c")):
        player.call(ApiKey.PRODUCE, 9, produced(zstd, records))
    player.call(ApiKey.PRODUCE, 9, produced(forced, batch(b"a")))
    player.call(ApiKey.PRODUCE, 9, produced(fixed, batch(b"a")))
    for version in range(4):
        ask = _Fetching(player, version)
        for offset in (*range(12), 99, -1):
            ask(f"from {offset}", topic, offset)
        for limit in (0, 1, 80, 100, 250, 400):
            ask(f"partition limit {limit}", topic, bytes_max=limit)
            ask(f"answer limit {limit}", topic, max_bytes=limit)
        ask("an empty partition", topic, partition=1)
        ask("unknown partition", topic, partition=9)
        ask("unknown topic", f"{PREFIX}.unknown")
        ask("more bytes wanted than there are", topic, min_bytes=1 << 19)
        ask("zstd further on", zstd)
        ask("zstd", zstd, 1)
        ask("after zstd", zstd, 2)
        ask("a topic of zstd", forced)
        ask("a topic that does not convert", fixed)
        ask("a topic that does not convert, nothing to read", fixed, partition=1)
        ask("a topic that does not convert, out of range", fixed, 9)
        player.ask(f"fetch v{version}: no topics", ApiKey.FETCH, version, FetchRequest(max_wait_ms=100))
    for version in (4, 9, 10):
        ask = _Fetching(player, version)
        ask("zstd", zstd, 1)
        ask("a topic of zstd", forced)
        ask("a topic of zstd, out of range", forced, 9)


class _Fetching:
    """Asks for one partition in one version."""

    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version

    def __call__(
        self,
        what: str,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        bytes_max: int = 1 << 20,
        **fields: int,
    ) -> None:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        fields = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])], **fields)
        answer = self.player.call(ApiKey.FETCH, self.version, request)
        (line,) = answer.responses[0].partitions
        records, line.records = line.records, b""
        shown = None if records is None else _entries(records)
        self.player.write_down(f"fetch v{self.version}: {what}", {"answer": normalised(answer), "records": shown})


def _read_back(player: Player, topic: str) -> None:
    for version in range(5):
        _Fetching(player, version)(f"all of {topic}", topic)


def _entries(records: bytes) -> list[Any]:
    return [
        _old_entry(records, entry) if entry.magic < layout.MAGIC else _batch(records[entry.start : entry.end])
        for entry in read_entries(records)
    ]


def _old_entry(records: bytes, entry: Any) -> dict[str, Any]:
    result = read_message(records, entry)
    shown = {"magic": entry.magic, "crc_holds": is_checksum_valid(records, entry)}
    if not result.codec:
        return {**shown, **_message(result)}
    raw = read_message(records, entry)._replace(offset=0)
    return {
        **shown,
        **_message(result._replace(value=None)),
        "inside": [_message(m) for m in unwrap_messages(raw, entry.magic)],
    }


def _message(found: Any) -> dict[str, Any]:
    """Offsets of what is inside are those on the wire: the wrapper was read as if it were at offset 0."""
    return {
        "offset": found.offset,
        "attributes": found.attributes,
        "timestamp": RULES["timestamp"](found.timestamp_ms),
        "key": None if found.key is None else found.key.hex(),
        "value": None if found.value is None else found.value.hex(),
    }


def _batch(data: bytes) -> dict[str, Any]:
    header = layout.read_header(data)
    shown = {
        "magic": 2,
        "base_offset": header.base_offset,
        "attributes": header.attributes,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": RULES["timestamp"](header.base_timestamp),
        "max_timestamp": RULES["timestamp"](header.max_timestamp),
        "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
        "crc_holds": layout.checksum(data) == header.crc,
    }
    read = [
        [offset, RULES["timestamp"](r.timestamp_ms), *(None if f is None else f.hex() for f in (r.key, r.value))]
        for offset, r in read_records(data)
    ]
    return {**shown, "records": read}


def _list_offsets(player: Player) -> None:
    topic = f"{PREFIX}.read"

    def ask(what: str, *wanted: tuple[int, int, int], name: str = topic) -> None:
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=timestamp, max_num_offsets=count)
            for index, timestamp, count in wanted
        ]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=partitions)])
        player.ask(f"offsets v0: {what}", ApiKey.LIST_OFFSETS, 0, request)

    for timestamp in (-1, -2, -3, -5, 0, TIME_MS, FAR_AHEAD_MS):
        for count in (0, 1, 2, 5):
            ask(f"timestamp {timestamp}, {count} of them", (0, timestamp, count))
        ask(f"timestamp {timestamp}, an empty partition", (1, timestamp, 2))
    ask("a negative number of them", (0, -1, -1))
    ask("a partition twice", (0, -1, 1), (0, -2, 1))
    ask("unknown partition", (9, -1, 1))
    ask("negative partition", (-1, -1, 1))
    ask("a known and an unknown partition", (0, -1, 1), (9, -1, 1))
    ask("unknown topic", (0, -1, 1), name=f"{PREFIX}.unknown")
    ask("bad topic name", (0, -1, 1), name="a/b")
    ask("no partitions")
    player.ask("offsets v0: no topics", ApiKey.LIST_OFFSETS, 0, ListOffsetsRequest())
