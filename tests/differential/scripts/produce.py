"""Produce in every version: right, and wrong in one place at a time (B.7)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential import batches
from tests.differential.batches import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, TIME_MS, ZSTD, batch, message
from tests.differential.play import Player

PREFIX = "diff.produce"
FAR_AHEAD_MS = 4_000_000_000_000


def produced(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, **more: object
) -> ProduceRequest:
    """A request with one record set."""
    data = PartitionProduceData(index=partition, records=records)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics, **more)  # type: ignore[arg-type]


def script(player: Player) -> None:
    player.make_topic(f"{PREFIX}.tiny", max_message_bytes="200")
    player.make_topic(f"{PREFIX}.compact", cleanup_policy="compact")
    player.make_topic(f"{PREFIX}.logtime", message_timestamp_type="LogAppendTime")
    player.make_topic(f"{PREFIX}.before", message_timestamp_before_max_ms="1000")
    player.make_topic(f"{PREFIX}.gzip", compression_type="gzip")
    player.make_topic(f"{PREFIX}.once")
    player.make_topic(f"{PREFIX}.isr", min_insync_replicas="2")
    for version in range(3, 12):
        ask = _Asking(player, version)
        _right(player, version, ask)
        _wrong_places(ask)
        _wrong_batches(ask)
        _wrong_for_the_topic(ask)


class _Asking:
    """A client of one version, by default with the topic of that version."""

    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version
        self.topic = f"{PREFIX}.v{version}"
        player.make_topic(self.topic, 4)

    def __call__(
        self, what: str, records: bytes | None, *, to: str | None = None, may_be_silent: bool = False, **more: object
    ) -> None:
        self.player.ask(
            f"v{self.version}: {what}",
            ApiKey.PRODUCE,
            self.version,
            produced(self.topic if to is None else to, records, **more),  # type: ignore[arg-type]
            may_be_silent=may_be_silent,
        )


def _right(player: Player, version: int, ask: _Asking) -> None:

    ask("one record", batch(b"one"))
    ask("three records, acks 1", batch(b"a", b"b", b"c"), acks=1)
    player.tell(ApiKey.PRODUCE, version, produced(ask.topic, batch(b"untold"), acks=0))
    ask("after one without answer", batch(b"told"))
    for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd")):
        ask(f"two records in {name}", batch(b"a" * 50, b"b" * 50, codec=codec))
    ask("null value", batch(None))
    ask("null key", batch(b"v", key=None))
    ask("log append time asked for", batch(b"v", attributes=LOG_APPEND_TIME))
    ask("no timestamp", batch(b"v", base_time_ms=-1))
    _several(player, version, ask.topic)


def _wrong_places(ask: _Asking) -> None:
    ask("acks 2", batch(b"v"), acks=2)
    ask("acks -2", batch(b"v"), acks=-2)
    ask("acks 2, unknown topic", batch(b"v"), acks=2, to=f"{PREFIX}.unknown")
    ask("unknown topic", batch(b"v"), to=f"{PREFIX}.unknown")
    ask("bad topic name", batch(b"v"), to="a/b")
    ask("empty topic name", batch(b"v"), to="")
    ask("unknown partition", batch(b"v"), partition=9)
    ask("negative partition", batch(b"v"), partition=-1)
    ask("unknown topic, null records", None, to=f"{PREFIX}.unknown", may_be_silent=True)
    ask("null records", None, may_be_silent=True)
    ask("a transactional id, no transaction", batch(b"v"), to=f"{PREFIX}.once", transactional_id=f"{PREFIX}.id")


def _wrong_batches(ask: _Asking) -> None:
    ask("empty records", b"", may_be_silent=True)
    ask("wrong crc", batch(b"v", crc=1))
    ask("magic 3", batch(b"v", magic=3), may_be_silent=True)
    ask("magic -1", batch(b"v", magic=-1), may_be_silent=True)
    ask("message of format 1", message(b"v", magic=1), may_be_silent=True)
    ask("message of format 0", message(b"v", magic=0), may_be_silent=True)
    ask("two batches", batch(b"a") + batch(b"b", base_offset=1), may_be_silent=True)
    ask("cut batch", batch(b"value")[:-3], may_be_silent=True)
    ask("cut header", batch(b"value")[:40], may_be_silent=True)
    ask("eleven bytes", batch(b"value")[:11], may_be_silent=True)
    ask("length too small", batch(b"v", length=20), may_be_silent=True)
    ask("length negative", batch(b"v", length=-1), may_be_silent=True)
    ask("bytes after the batch", batch(b"v") + b"abc", may_be_silent=True)
    ask("count too large", batch(b"v", count=2))
    ask("count too small", batch(b"a", b"b", count=1, last_offset_delta=0))
    ask("count zero", batch(count=0, last_offset_delta=0, payload=b""))
    ask("count negative", batch(b"v", count=-1))
    ask("last offset delta too large", batch(b"v", last_offset_delta=4))
    ask("last offset delta negative", batch(b"v", last_offset_delta=-1))
    ask("base offset is not zero", batch(b"v", base_offset=77))
    ask("base offset negative", batch(b"v", base_offset=-5))
    ask("offset deltas with a gap", _with_gap())
    ask("a control batch", batch(b"v", attributes=batches.CONTROL))
    ask("a transactional batch without an id", batch(b"v", attributes=batches.TRANSACTIONAL))
    ask("a record that is cut", _cut_record())
    ask("bytes after the records", batch(b"v", payload=batches.record(0, b"k", b"v") + b"\x00\x00"))
    ask("gzip that does not inflate", batch(b"v", codec=GZIP, payload=b"no gzip at all"))
    ask("zstd that does not inflate", batch(b"v", codec=ZSTD, payload=b"no zstd at all"))
    ask("gzip with a wrong count", batch(b"a", b"b", codec=GZIP, count=3, last_offset_delta=2))
    ask("codec 5", batch(b"v", codec=5, payload=batches.record(0, b"k", b"v")))
    ask("codec 7", batch(b"v", codec=7, payload=batches.record(0, b"k", b"v")))


def _wrong_for_the_topic(ask: _Asking) -> None:
    ask("a record too large", batch(b"v" * 300), to=f"{PREFIX}.tiny")
    ask("null key in a compacted topic", batch(b"v", key=None), to=f"{PREFIX}.compact")
    ask("a time too far ahead", batch(b"v", base_time_ms=FAR_AHEAD_MS))
    ask("a time too far behind", batch(b"v"), to=f"{PREFIX}.before")
    ask("a maximum time that no record has", batch(b"v", max_time_ms=TIME_MS + 5000))
    ask("log append time", batch(b"v"), to=f"{PREFIX}.logtime")
    ask("log append time asked for and given", batch(b"v", attributes=LOG_APPEND_TIME), to=f"{PREFIX}.logtime")
    ask("log append time, time too far ahead", batch(b"v", base_time_ms=FAR_AHEAD_MS), to=f"{PREFIX}.logtime")
    ask("recompressed by the topic", batch(b"v"), to=f"{PREFIX}.gzip", acks=1)
    ask("too few replicas", batch(b"v"), to=f"{PREFIX}.isr")
    ask("too few replicas, acks 1", batch(b"v"), to=f"{PREFIX}.isr", acks=1)


def _several(player: Player, version: int, topic: str) -> None:
    """Requests with more than one record set, or none; partitions 2 and 3 take the odd ones."""

    def data(partition: int, *values: bytes) -> PartitionProduceData:
        return PartitionProduceData(index=partition, records=batch(*values))

    for what, topics in {
        "no topics": [],
        "a topic without partitions": [TopicProduceData(name=topic)],
        "two partitions": [TopicProduceData(name=topic, partition_data=[data(0, b"a"), data(1, b"b")])],
        "a right and a wrong partition": [TopicProduceData(name=topic, partition_data=[data(1, b"a"), data(9, b"b")])],
        "a partition twice": [TopicProduceData(name=topic, partition_data=[data(2, b"a"), data(2, b"b")])],
        "a topic twice": [
            TopicProduceData(name=topic, partition_data=[data(2, b"a")]),
            TopicProduceData(name=topic, partition_data=[data(3, b"b")]),
        ],
    }.items():
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics)
        player.ask(f"v{version}: {what}", ApiKey.PRODUCE, version, request, may_be_silent=True)


def _with_gap() -> bytes:
    records = batches.record(0, b"k", b"a") + batches.record(1, b"k", b"b", offset_delta=5)
    return batch(b"a", b"b", payload=records)


def _cut_record() -> bytes:
    return batch(b"value", payload=batches.record(0, b"k", b"value")[:-2])
