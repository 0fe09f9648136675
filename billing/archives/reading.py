"""What a task of Spark does: reads a range of one partition as a client of the instance, and writes its files.

No setting of Django is read here: Spark's workers do not have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final

from billing.archives import address, limits
from billing.archives.damage import end_of_damage
from billing.archives.files import FileSet, Headers, Written
from billing.archives.plan import Pace, Range
from billing.archives.raw_headers import HeadersUnreadable, RawHeaders
from billing.archives.values import columns_of

CLIENT_ID: Final = "penstock-archive"
CONSUMED_AT_ONCE: Final = 5_000
POLL_S: Final = 0.2
AHEAD_BYTES_MIN: Final = 65_536
AHEAD_BYTES_MAX: Final = 4_194_304
END: Final = "end"
# A name that is not UTF-8 is an exception that the client forgets to raise. Called in this way it is raised here, and
# not by whatever is called next.
_HEADERS: Final = methodcaller("headers")
# Of a client that is there for few records.
_AHEAD_OF_FEW: Final = {"queued.max.messages.kbytes": 1_024, "fetch.message.max.bytes": 65_536}
# Settings of any client, by how their names begin.
_OF_CONNECTIONS: Final = ("bootstrap.", "client.id", "security.", "sasl.", "ssl.", "log_level")
_SILENT: Final = "Nothing came of partition {}: the instance is throttled or silent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How a tenant's topic is read: `conf` is what a client of the instance's own address is set to, `value_format` and
    `value_schema` say which columns are made of values. `generation` counts topics that were made anew under the name.
    """

    topic: str
    conf: Mapping[str, Any] = field(repr=False)
    value_format: str = ""
    value_schema: Any = None
    skips_bad: bool = True
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of a range: all of `[start, reached)` is in `files`, or was skipped; `bytes_read` of records. With an
    `error` nothing is; where the time was over before anything came, `reached` is `start`.
    """

    range: Range
    reached: int
    files: tuple[Written, ...] = ()
    skipped: int = 0
    bytes_read: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Offsets `[start, stop)` are of a batch whose checksum or compression is wrong."""

    start: int
    stop: int


class Stopped(Exception):
    """The range cannot be read on. The message is for the tenant."""


def consumer_conf(bootstrap: str, security: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a consumer that sees committed records alone, by explicit offsets, and joins no group."""
    return {
        **security,
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        # Never joined and never committed to; librdkafka wants a name.
        "group.id": CLIENT_ID,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
        # Where a damaged batch ends is found by asking some times.
        "fetch.error.backoff.ms": 50,
        "allow.auto.create.topics": False,
        "log_level": 3,
        # Memory of a task beside its buffers.
        "queued.max.messages.kbytes": 16_384,
        "fetch.message.max.bytes": AHEAD_BYTES_MAX,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as it is now. `ends` has (log start offset, last stable offset) of every partition that has a leader."""

    id: str
    ends: Mapping[int, tuple[int, int]]


def topic_state(source: Source) -> TopicState:
    """Raises `Stopped`: there is no such topic, or the client gets no answer."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    try:
        found = _described(source)
        # Not before: brokers count failed logins of an address, and each client tries again and again.
        consumer = Consumer(dict(source.conf))
        try:
            ends = {
                partition.id: consumer.get_watermark_offsets(
                    TopicPartition(source.topic, partition.id), timeout=limits.METADATA_TIMEOUT_S, cached=False
                )
                for partition in sorted(found.partitions, key=lambda each: each.id)
                if partition.leader is not None and partition.leader.id >= 0
            }
        finally:
            consumer.close()
    except KafkaException as trouble:
        raise _stopped(trouble) from trouble
    return TopicState(id=str(found.topic_id), ends=ends)


def topic_id_of(source: Source) -> str:
    """The id of the topic that has the name now. Raises `Stopped`."""
    from confluent_kafka import KafkaException

    try:
        return str(_described(source).topic_id)
    except KafkaException as trouble:
        raise _stopped(trouble) from trouble


def _described(source: Source) -> Any:
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    conf = {name: value for name, value in source.conf.items() if name.startswith(_OF_CONNECTIONS)}
    client = AdminClient(conf)  # it must outlive the question
    described = client.describe_topics(TopicCollection([source.topic]), request_timeout=limits.METADATA_TIMEOUT_S)
    return described[source.topic].result(limits.METADATA_TIMEOUT_S * 2)


def _stopped(trouble: Any) -> Stopped:
    from confluent_kafka import KafkaError

    failure = trouble.args[0]
    if failure.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        return Stopped(f"The topic cannot be read: {failure.str()}")
    return Stopped(f"The instance does not answer its client: {failure.str()}")


def archive_range(source: Source, store: address.Store, pace: Pace, wanted: Range) -> TaskResult:
    """Never raises: what is the matter with one partition keeps no other waiting (BAT-5)."""
    if time.time() >= pace.ends_s:
        return TaskResult(range=wanted, reached=wanted.start)
    try:
        columns = columns_of(source.value_format, source.value_schema)
        with address.open_place(store) as place:
            files = FileSet(place, source.topic, wanted.partition, columns, source.generation)
            try:
                reached, skipped, bytes_read = _copy(source, pace, wanted, files)
                written = files.finish()
            finally:
                files.abandon()
    except (Stopped, address.AddressRefused) as stop:
        return TaskResult(range=wanted, reached=wanted.start, error=str(stop))
    except OSError as trouble:
        return TaskResult(range=wanted, reached=wanted.start, error=f"The address cannot be written to: {trouble}")
    except Exception as failure:
        return TaskResult(range=wanted, reached=wanted.start, error=f"Partition not archived: {type(failure).__name__}")
    return TaskResult(range=wanted, reached=reached, files=tuple(written), skipped=skipped, bytes_read=bytes_read)


def _copy(source: Source, pace: Pace, wanted: Range, files: FileSet) -> tuple[int, int, int]:
    """The offset that was reached, how many records were skipped, and the bytes of the others."""
    raw_headers = RawHeaders(dict(source.conf) | _AHEAD_OF_FEW, source.topic, wanted.partition, limits.STALLED_S)
    try:
        return _copy_with(source, pace, wanted, files, raw_headers)
    finally:
        raw_headers.close()


def _copy_with(
    source: Source, pace: Pace, wanted: Range, files: FileSet, raw_headers: RawHeaders
) -> tuple[int, int, int]:
    reached, skipped, records, size = wanted.start, 0, 0, 0
    began_s = time.time()
    for message in _messages(source, pace, wanted):
        if message is END:
            return wanted.stop, skipped, size
        if isinstance(message, Damaged):
            reached, skipped = message.stop, skipped + message.stop - message.start
            continue
        offset = int(message.offset())
        try:
            headers = headers_of(message, raw_headers)
        except HeadersUnreadable as trouble:
            if not source.skips_bad:
                raise Stopped(f"The headers of the record at offset {offset} cannot be read: {trouble}.") from trouble
            skipped += 1
        else:
            size += files.add(offset, int(message.timestamp()[1]), message.key(), message.value(), headers)
        reached, records = offset + 1, records + 1
        if (wait_s := pace.wait_s(began_s, time.time(), size)) > limits.WAIT_S_MIN:
            if time.time() + wait_s >= pace.ends_s:
                break
            time.sleep(wait_s)
        if records >= limits.RECORDS_PER_TASK_MAX or size >= limits.BYTES_PER_TASK_MAX:
            break
    return reached, skipped, size


def headers_of(message: Any, raw_headers: RawHeaders) -> Headers:
    """Names and values. In a name that is not UTF-8, the bytes that are not are written `\\xff`.

    Raises:
        HeadersUnreadable: see there.
    """
    try:
        return _HEADERS(message) or ()
    except (SystemError, UnicodeDecodeError):
        found = raw_headers.of(int(message.offset()))
    return [(name.decode(errors="backslashreplace"), value) for name, value in found]


def _messages(source: Source, pace: Pace, wanted: Range) -> Iterator[Any]:
    """Records below the range's end, `Damaged` for a batch that cannot be read, and `END` when there are no more: what
    lies before the end may be of aborted transactions. Without `END` the time was over.

    Raises:
        Stopped: nothing came.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(dict(source.conf) | _ahead(pace))
    try:
        consumer.assign([TopicPartition(source.topic, wanted.partition, wanted.start)])
        stalls_s = time.time() + limits.STALLED_S
        while (now_s := time.time()) < pace.ends_s:
            for message in consumer.consume(CONSUMED_AT_ONCE, POLL_S):
                stalls_s = now_s + limits.STALLED_S
                failure = message.error()
                if failure is None and (message.offset() or 0) < wanted.stop:
                    yield message
                elif failure is None or failure.code() == KafkaError._PARTITION_EOF:
                    yield END
                    return
                elif _is_damage(failure):
                    damaged = _damaged(source, consumer, wanted, message.offset() or 0)
                    yield damaged
                    consumer.assign([TopicPartition(source.topic, wanted.partition, damaged.stop)])
                    break
                elif not failure.retriable():
                    raise Stopped(f"Partition {wanted.partition} cannot be read: {failure.str()}")
            if now_s > stalls_s:
                raise Stopped(_SILENT.format(wanted.partition))
    finally:
        consumer.close()


def _is_damage(failure: Any) -> bool:
    from confluent_kafka import KafkaError

    return failure is not None and failure.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)


def _damaged(source: Source, consumer: Any, wanted: Range, base: int) -> Damaged:
    """A client that meets a damaged batch stays before it. Raises `Stopped`."""
    from confluent_kafka import TopicPartition

    if not source.skips_bad:
        raise Stopped(f"The batch at offset {base} is damaged, and the archive skips none.")

    def meets_it(offset: int) -> bool:
        consumer.assign([TopicPartition(source.topic, wanted.partition, offset)])
        message = consumer.poll(limits.STALLED_S)
        if message is None:
            raise Stopped(_SILENT.format(wanted.partition))
        return _is_damage(message.error()) and message.offset() == base

    return Damaged(start=base, stop=end_of_damage(base, wanted.stop, meets_it))


def _ahead(pace: Pace) -> dict[str, int]:
    """Who keeps a pace has no more fetched than a second of it: that counts against the instance's bandwidth too."""
    if pace.bytes_per_s is None:
        return {}
    ahead_bytes = max(AHEAD_BYTES_MIN, min(AHEAD_BYTES_MAX, pace.bytes_per_s))
    return {"queued.max.messages.kbytes": ahead_bytes // 1_024, "fetch.message.max.bytes": ahead_bytes}
