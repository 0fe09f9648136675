"""Pages of messages from a real broker, compared with confluent-kafka's reads."""

from __future__ import annotations

import itertools
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from django.core.cache import cache
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from brokers.dataplane import admin_client, message_pages, message_sender
from brokers.dataplane.message_source import TopicSource
from brokers.dataplane.messages import KafkaMessageAdminClient
from brokers.dataplane.topics import KafkaTopicAdminClient
from brokers.models import Cluster
from instances.messages import limits
from instances.messages.interfaces import (
    FROM_NEWEST,
    NEWER,
    OFFSET,
    OLDER,
    OLDEST,
    TIME,
    TOO_LARGE,
    NewMessage,
    Page,
    PageRequest,
    Positions,
    Record,
    Start,
)
from instances.models import Instance
from tenants.errors import Invalid, NotFound, Unavailable
from tests.testkit import depth
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.fleet import make_fleet, make_running, place
from tests.testkit.verbatim_batches import batch_of_zeros, send_batch

INSTANCE_ID = "ins-reads001"
NARROW_ID = "ins-narrow01"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FROM_OLDEST = Start(OLDEST)
Known = tuple[int, int, "bytes | None", "bytes | None", list[tuple[str, "bytes | None"]], int]

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    overrides = {
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes.min": "1",
    }
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("reading"), overrides=overrides) as running:
        running.create_instance(INSTANCE_ID)
        yield running
    admin_client.links().close()


@pytest.fixture()
def cluster(engines: EngineCluster, tmp_path: Path, db: None) -> Cluster:
    """Rows of the control plane for that broker."""
    cache.clear()
    fleet = make_fleet(tmp_path, brokers=1)
    Path(fleet.control_secret_file).write_text(engines.secret)
    settings = engines.brokers[0].settings
    fleet.brokers.update(internal_port=settings.internal_port, admin_port=settings.admin_port)
    fleet.brokers.first().host.__class__.objects.update(internal_host="127.0.0.1")
    return fleet


@pytest.fixture(autouse=True)
def instance(cluster: Cluster) -> Instance:
    running = make_running(make_tenant(), id=INSTANCE_ID)
    place(running, cluster)
    return running


@pytest.fixture()
def bootstrap(engines: EngineCluster) -> str:
    return engines.instances[INSTANCE_ID].bootstrap


def make_topic(partitions: int = 1, **config: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    named = {key.replace("_", "."): value for key, value in config.items()}
    KafkaTopicAdminClient().create_topic(
        INSTANCE_ID, name, partitions=partitions, replication_factor=1, config=named, validate_only=False
    )
    eventually(lambda: min(TopicSource(INSTANCE_ID, name).leaders.values()) > 0, "the topic has leaders")
    return name


def wanted(limit: int = 50, start: Start = FROM_NEWEST, **changes: Any) -> PageRequest:
    fields: dict[str, Any] = {
        "start": start, "positions": None, "partition": None, "limit": limit, "accepts": lambda _record: True,
        "is_filtered": False, "shown_bytes": lambda record: len(record.value or b""),
    }  # fmt: skip
    return PageRequest(**{**fields, **changes})


def read(topic: str, limit: int = 50, start: Start = FROM_NEWEST, **changes: Any) -> Page:
    return KafkaMessageAdminClient().read(INSTANCE_ID, topic, wanted(limit, start, **changes))


def read_all(topic: str, limit: int, start: Start = FROM_NEWEST, **changes: Any) -> list[Record]:
    """Returns the records of all pages in the order of reading."""
    found: list[Record] = []
    positions: Positions | None = None
    for _ in range(10_000):
        page = read(topic, limit, start, positions=positions, **changes)
        assert len(page.records) <= limit
        found += page.records
        if page.is_end:
            return found
        positions = Positions(direction=page.direction, offsets=page.reached)
    raise AssertionError("pages without an end")


def consumed(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Known]:
    """Returns all records of a topic from confluent-kafka, by partition and offset."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
        "isolation.level": isolation, "enable.auto.commit": False,
    })  # fmt: skip
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    known: list[Known] = []
    ended: set[int | None] = set()
    until_s = time.monotonic() + 30
    while len(ended) < len(partitions):
        assert time.monotonic() < until_s, "the consumer does not come to an end"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            headers = [(name, value) for name, value in message.headers() or []]
            known.append((
                message.partition() or 0, message.offset() or 0, message.key(), message.value(), headers,
                message.timestamp()[1],
            ))  # fmt: skip
    consumer.close()
    return sorted(known, key=lambda entry: entry[:2])


def plain(records: list[Record]) -> list[Known]:
    return sorted(
        (
            (
                record.partition, record.offset, record.key, record.value,
                [(name.decode(), value) for name, value in record.headers], record.timestamp_ms,
            )
            for record in records
            if record.marker is None
        ),
        key=lambda entry: entry[:2],
    )  # fmt: skip


def flushed(producer: Producer) -> None:
    assert producer.flush(30) == 0


def test_hostile_records_of_every_codec_are_read_as_confluent_kafka_reads_them(bootstrap: str) -> None:
    topic = make_topic(3)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(40):
            producer.produce(topic, f"{codec} {number} ".encode() * 40, f"k{number}", partition=number % 3)
        repeated = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("none", None), ("bytes", b"\xff\xfe")]
        producer.produce(topic, b"\xff\xfe\x00\x80" * 20, b"\x00\xff", partition=0, headers=repeated)
        producer.produce(topic, None, "tombstone", partition=1)
        producer.produce(topic, b"", None, partition=2)
        producer.produce(
            topic, b"\xe4\xbd\xa0" * 60_000, None, partition=2, timestamp=int(time.time() * 1000) - 3_600_000
        )
        flushed(producer)
    truth = consumed(bootstrap, topic)
    assert len(truth) == len(CODECS) * 44
    for start, limit in itertools.product((FROM_NEWEST, FROM_OLDEST), (1, 7, 500)):
        found = read_all(topic, limit, start)
        assert plain(found) == truth, (start, limit)
        for index in range(3):
            offsets = [record.offset for record in found if record.partition == index]
            assert offsets == sorted(offsets, reverse=start is FROM_NEWEST)


def test_the_newest_of_all_partitions_come_first_and_pages_lead_back_and_forth(bootstrap: str) -> None:
    topic = make_topic(4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200):
        producer.produce(topic, str(number), partition=number * 7 % 4, timestamp=1_700_000_000_000 + number * 10)
    flushed(producer)
    first = read(topic, 15)
    assert [record.value for record in first.records] == [str(n).encode() for n in range(199, 184, -1)]
    second = read(topic, 15, positions=Positions(direction=OLDER, offsets=first.reached))
    assert [record.value for record in second.records] == [str(n).encode() for n in range(184, 169, -1)]
    newer = read(topic, 15, positions=Positions(direction=NEWER, offsets=second.began))
    assert sorted(int(record.value or b"") for record in newer.records) == list(range(185, 200))
    at = read(topic, 5, Start(TIME, 1_700_000_000_995))
    assert [record.value for record in at.records] == [str(n).encode() for n in range(100, 105)]
    offset = read(topic, 2, Start(OFFSET, 7), partition=2)
    assert [(record.partition, record.offset) for record in offset.records] == [(2, 7), (2, 8)]
    assert read(topic, 5, Start(TIME, 1_900_000_000_000)).is_end
    with pytest.raises(Invalid):
        read(topic, partition=4)
    with pytest.raises(NotFound):
        read("nothing-here")


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{uuid.uuid4().hex[:6]}"})
    producer.init_transactions(30)
    return producer


def states(records: list[Record]) -> dict[bytes, str | None]:
    return {
        record.value or b"": None if record.transaction is None else record.transaction.state
        for record in records
        if record.marker is None
    }


def test_the_state_of_every_transactional_message_is_exact(bootstrap: str) -> None:
    """Also after an open transaction, where no list of aborted ones exists."""
    topic = make_topic()
    plain_producer = Producer({"bootstrap.servers": bootstrap})
    first, second, third = (transactional(bootstrap, name) for name in ("one", "two", "three"))

    def produce(producer: Producer, *values: str) -> None:
        for value in values:
            producer.produce(topic, value, partition=0)
        flushed(producer)

    truth: dict[bytes, str | None] = {}
    for number in range(3):
        first.begin_transaction()
        produce(first, f"kept {number}", f"kept too {number}")
        produce(plain_producer, f"plain {number}")
        second.begin_transaction()
        produce(second, f"dropped {number}")
        first.commit_transaction(30)
        produce(second, f"dropped too {number}")
        second.abort_transaction(30)
        truth |= {f"kept {number}".encode(): "committed", f"kept too {number}".encode(): "committed"}
        truth |= {f"dropped {number}".encode(): "aborted", f"dropped too {number}".encode(): "aborted"}
        truth[f"plain {number}".encode()] = None
    third.begin_transaction()
    produce(third, "open")
    for number in range(3, 6):
        for producer, end in ((first, "committed"), (second, "aborted")):
            producer.begin_transaction()
            produce(producer, f"{end} behind {number}")
            truth[f"{end} behind {number}".encode()] = end
            if end == "committed":
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
    first.begin_transaction()
    produce(first, "open too")
    produce(third, "still open")
    truth |= {b"open": "open", b"open too": "open", b"still open": "open"}
    for start, limit in itertools.product((FROM_NEWEST, FROM_OLDEST), (1, 4, 500)):
        found = read_all(topic, limit, start)
        assert states(found) == truth, (start, limit)
        assert sum(record.marker is not None for record in found) == 12
    first.abort_transaction(30)
    third.commit_transaction(30)
    ends = truth | {b"open": "committed", b"open too": "aborted", b"still open": "committed"}
    found = read_all(topic, 3)
    assert states(found) == ends
    committed = {entry[3] for entry in consumed(bootstrap, topic, "read_committed")}
    assert {value for value, state in states(found).items() if state in (None, "committed")} == committed
    assert {record.marker for record in found if record.marker} == {"commit", "abort"}


def test_gaps_of_compaction_are_passed_over(bootstrap: str) -> None:
    topic = make_topic(cleanup_policy="compact", segment_bytes="16384", min_cleanable_dirty_ratio="0.01")
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 5})
    for number in range(3_000):
        producer.produce(topic, b"v" * 100, f"k{number % 3}" if number not in (5, 1_500) else f"once {number}")
    flushed(producer)
    eventually(lambda: len(consumed(bootstrap, topic)) < 1_000, "the topic is compacted", 60)
    truth = consumed(bootstrap, topic)
    for start, limit in itertools.product((FROM_NEWEST, FROM_OLDEST), (2, 50)):
        assert {entry[2] for entry in plain(read_all(topic, limit, start))} >= {b"once 5", b"once 1500"}
    assert {entry[1] for entry in plain(read_all(topic, 100))} <= {entry[1] for entry in truth}


BYTES = st.none() | st.binary(max_size=12) | st.sampled_from([b"", b"\xff\xfe", "ü".encode(), b"x" * 100])
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "trace", "", "ü"]), BYTES), max_size=4)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 2**41)), min_size=1, max_size=8)
# Of a batch: its format, its codec (an old format knows no zstd), its records, and how often it is repeated.
BATCH = st.tuples(st.sampled_from([0, 1, 2, 2]), st.sampled_from([0, 1, 2, 3, 4]), RECORDS, st.integers(1, 40))


@settings(
    max_examples=depth.number_from("PENSTOCK_MESSAGE_TOPICS", 4, 40), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(batches=st.lists(BATCH, min_size=1, max_size=12), limit=st.sampled_from([3, 50, 500]))
def test_batches_of_every_format_and_codec_are_read_as_confluent_kafka_reads_them(
    bootstrap: str, batches: list[Any], limit: int
) -> None:
    topic = make_topic(retention_ms="-1")  # records may be of 1970
    for magic, codec, records, times in batches:
        builder = MemoryRecordsBuilder(magic, 0 if magic < 2 and codec == 4 else codec, 1 << 20)
        for key, value, headers, timestamp in records:
            more = {"headers": headers} if magic == 2 else {}
            builder.append(timestamp=timestamp, key=key, value=value, **more)
        builder.close()
        for _ in range(times):
            send_batch(
                INSTANCE_ID, topic, bytes(builder.buffer()), version=message_sender.PRODUCE_VERSION if magic == 2 else 2
            )
    truth = consumed(bootstrap, topic)
    assert len(truth) == sum(len(records) * times for _, _, records, times in batches)
    for start in (FROM_NEWEST, FROM_OLDEST):
        assert plain(read_all(topic, limit, start)) == truth, start


@pytest.mark.parametrize("codec", [1, 2, 4])
def test_a_batch_that_inflates_beyond_the_limit_is_named_and_passed_over(codec: int) -> None:
    topic = make_topic(max_message_bytes="4000000")
    send_batch(INSTANCE_ID, topic, batch_of_zeros(1_000, 0))
    for _ in range(3):
        send_batch(INSTANCE_ID, topic, batch_of_zeros(limits.INFLATED_BYTES_MAX + 1_000, codec))
    send_batch(INSTANCE_ID, topic, batch_of_zeros(20_000_000, codec))
    send_batch(INSTANCE_ID, topic, batch_of_zeros(20_000_000, codec))
    for start in (FROM_NEWEST, FROM_OLDEST):
        positions, offsets, bombs = None, [], []
        for _ in range(20):
            page = read(topic, 50, start, positions=positions, shown_bytes=lambda _record: 0)
            offsets += [record.offset for record in page.records]
            bombs += [(batch.offset, batch.reason) for batch in page.unreadable]
            if page.is_end:
                break
            positions = Positions(direction=page.direction, offsets=page.reached)
        assert sorted(offsets) == [0, 4, 5]
        assert sorted(bombs) == [(1, TOO_LARGE), (2, TOO_LARGE), (3, TOO_LARGE)]


def test_a_page_of_large_messages_is_bounded_and_goes_on(bootstrap: str) -> None:
    topic = make_topic(max_message_bytes="1200000")
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1_500_000})
    for number in range(24):
        producer.produce(topic, struct.pack(">I", number) + bytes(1_000_000))
    flushed(producer)
    for start in (FROM_NEWEST, FROM_OLDEST):
        page = read(topic, 500, start)
        assert 1 <= len(page.records) < 24
        assert page.read_bytes <= limits.READ_BYTES_MAX + 2_200_000
        found = read_all(topic, 500, start, shown_bytes=lambda _record: 0)
        numbers = [struct.unpack(">I", (record.value or b"")[:4])[0] for record in found]
        assert numbers == sorted(range(24), reverse=start is FROM_NEWEST)


def test_a_filter_that_matches_nothing_gives_up_in_time_and_says_how_far_it_came(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCAN_RECORDS_MAX", 50_000)  # a fast machine looks at all of them in time
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "compression.type": "lz4"})
    for number in range(80_000):
        producer.produce(topic, b"x" * 50, partition=number % 2)
        if not number % 10_000:
            flushed(producer)
    flushed(producer)
    for start in (FROM_NEWEST, FROM_OLDEST):
        began_s = time.monotonic()
        page = read(topic, 50, start, accepts=lambda _record: False, is_filtered=True)
        assert time.monotonic() - began_s < 2.5
        assert not page.records and not page.is_end
        assert 1_000 <= page.scanned <= limits.SCAN_RECORDS_MAX
        assert sum(abs(page.reached[index] - page.began[index]) for index in (0, 1)) >= page.scanned
        positions, pages = Positions(direction=page.direction, offsets=page.reached), 1
        while not page.is_end:
            page = read(topic, 50, start, positions=positions, accepts=lambda _record: False, is_filtered=True)
            positions, pages = Positions(direction=page.direction, offsets=page.reached), pages + 1
            assert pages < 200


def test_a_scan_for_bytes_finds_the_same_messages_as_one_that_looks_at_each(bootstrap: str) -> None:
    topic = make_topic(3, retention_ms="-1")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "compression.type": "zstd"})
    for number in range(30_000):
        value = b"needle" if number % 997 == 0 else b"hay %d" % number
        producer.produce(topic, value, partition=number % 3, timestamp=1_700_000_000_000 + number)
    flushed(producer)
    for start, limit in itertools.product((FROM_NEWEST, FROM_OLDEST), (4, 500)):
        filtered: dict[str, Any] = {"accepts": lambda record: b"needle" in (record.value or b""), "is_filtered": True}
        found = [read_all(topic, limit, start, **filtered, literals=literals) for literals in ((), ((b"needle",),))]
        assert found[0] == found[1]
        assert len(found[0]) == 31


def test_messages_below_the_start_of_the_log_are_gone_in_the_middle_of_a_batch_too(bootstrap: str) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})
    for number in range(100):
        producer.produce(topic, str(number))
    flushed(producer)
    before = read(topic, 5)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 37)]).values():
        future.result(30)
    for start in (FROM_NEWEST, FROM_OLDEST):
        assert sorted(record.offset for record in read_all(topic, 30, start)) == list(range(37, 100))
    stale: Mapping[int, int] = {0: 20}
    assert read(topic, positions=Positions(direction=OLDER, offsets=stale)).is_end
    assert before.reached == {0: 95}


def test_a_topic_that_is_deleted_meanwhile_is_not_found() -> None:
    topic = make_topic()
    source = TopicSource(INSTANCE_ID, topic)
    send_batch(INSTANCE_ID, topic, batch_of_zeros(10, 0))
    KafkaTopicAdminClient().delete_topic(INSTANCE_ID, topic)
    eventually(
        lambda: not any(known.name == topic for known in KafkaTopicAdminClient().topics(INSTANCE_ID)), "it is gone"
    )
    cursor = message_pages.PartitionCursor(0, start=0, end=1, stable=1, position=1, direction=OLDER, window=1)
    reader = message_pages.PageReader(source, [cursor], wanted(), OLDER, time.monotonic, time.sleep)
    with pytest.raises(NotFound):
        reader.read()


def test_sent_messages_keep_their_order_and_go_to_the_partition_of_their_key(bootstrap: str) -> None:
    topic = make_topic(3)
    sent = [
        NewMessage(key=f"k{number % 5}".encode(), value=str(number).encode(), headers=[("n", b"1"), ("n", None)])
        for number in range(40)
    ]
    sent += [
        NewMessage(key=None, value=None),
        NewMessage(key=b"", value=b"", partition=2, timestamp_ms=1_790_000_000_000),
    ]
    results = KafkaMessageAdminClient().send(INSTANCE_ID, topic, sent)
    known = {entry[:2]: entry for entry in consumed(bootstrap, topic)}
    assert len(known) == len(sent)
    for message, result in zip(sent, results, strict=True):
        _, _, key, value, headers, _ = known[result.partition, result.offset or 0]
        assert (key, value, headers) == (message.key, message.value, list(message.headers))
    java = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(5):
        java.produce(topic, b"by a client", f"k{number}")
    flushed(java)
    by_client = {entry[2]: entry[0] for entry in consumed(bootstrap, topic) if entry[3] == b"by a client"}
    assert by_client == {m.key: r.partition for m, r in zip(sent[:5], results[:5], strict=True)}
    assert (results[-1].partition, known[2, results[-1].offset or 0][5]) == (2, 1_790_000_000_000)
    with pytest.raises(Invalid):
        KafkaMessageAdminClient().send(INSTANCE_ID, topic, [NewMessage(key=None, value=b"x", partition=3)])


def test_a_message_that_the_topic_does_not_take_is_refused_and_the_others_are_stored() -> None:
    topic = make_topic(2, max_message_bytes="2000")
    large, small = NewMessage(key=None, value=b"x" * 3_000, partition=0), NewMessage(key=None, value=b"x", partition=1)
    results = KafkaMessageAdminClient().send(INSTANCE_ID, topic, [large, small])
    assert [result.offset for result in results] == [None, 0]
    assert results[0].error is not None and results[0].error.code == "message_too_large"


def test_reading_and_sending_wait_for_the_bandwidth_of_the_instance_and_are_on_no_bill(
    engines: EngineCluster, cluster: Cluster
) -> None:
    """At 1 MB/s each, the console uses the bandwidth that was bought, as clients do."""
    engines.create_instance(NARROW_ID, produce_bps=1_000_000, consume_bps=1_000_000)
    place(make_running(make_tenant(), id=NARROW_ID), cluster)
    KafkaTopicAdminClient().create_topic(
        NARROW_ID, "narrow", partitions=1, replication_factor=1, config={}, validate_only=False
    )  # fmt: skip
    eventually(lambda: TopicSource(NARROW_ID, "narrow").leaders.get(0, -1) > 0, "the topic has a leader")
    began_s = time.monotonic()
    for _ in range(5):
        KafkaMessageAdminClient().send(NARROW_ID, "narrow", [NewMessage(key=None, value=bytes(900_000))])
    assert time.monotonic() - began_s > 2
    began_s, read_bytes = time.monotonic(), 0
    while time.monotonic() - began_s < 5:
        try:
            read_bytes += KafkaMessageAdminClient().read(NARROW_ID, "narrow", wanted()).read_bytes
        except Unavailable as error:
            assert error.code == "throttled"
    assert 1_000_000 < read_bytes < 5 * 1_000_000 + 3_000_000
    traffic = engines.brokers[0].admin(f"/v1/instances/{NARROW_ID}/traffic?since_ms=0")
    assert not any(point[1] or point[2] for point in traffic["points"])
