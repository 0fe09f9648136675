"""Task of a Spark worker that reads a range of one partition as a Kafka client of the instance and writes its files.

No Django setting is read here, because Spark workers do not have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final, Protocol

from archives import address, limits
from archives.damage import find_damage_end
from archives.files import FileSet, WrittenFile
from archives.plan import Range, TaskPace
from archives.raw_headers import HeadersUnreadable, RawHeaders
from archives.records import Headers, Records
from archives.values import columns_of

CLIENT_ID: Final = "penstock-archive"
MESSAGES_PER_POLL_MAX: Final = 5_000
POLL_S: Final = 0.2
# Largest record of a topic with default settings.
LARGE_RECORD_BYTES: Final = 1_048_576
PREFETCH_BYTES_MIN: Final = 65_536
PREFETCH_BYTES_MAX: Final = 4_194_304
QUEUE_BACKOFF_MS: Final = 10
RANGE_END: Final = "end"
# For a name that is not UTF-8, the client sets an exception without raising it. A call through `methodcaller` raises it
# at once; otherwise the next unrelated call would.
_HEADERS: Final = methodcaller("headers")
# Limits of prefetching of a client that reads few records.
_SMALL_PREFETCH: Final = {"queued.max.messages.kbytes": 1_024, "fetch.message.max.bytes": 65_536}
# Prefixes of the settings with which any client connects.
_CONNECTION_PREFIXES: Final = ("bootstrap.", "client.id", "security.", "sasl.", "ssl.", "log_level")
_NO_RECORDS: Final = "Nothing came of partition {}: the instance is throttled or silent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Access to a tenant's topic.

    `conf` are the settings of a client of the instance, `value_format` and `value_schema` determine the columns of
    values. `generation` counts recreations of the topic under its name.
    """

    topic: str
    conf: Mapping[str, Any] = field(repr=False)
    value_format: str = ""
    value_schema: Any = None
    skips_bad_records: bool = True
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """Result of a range: all of `[start, reached)` is in `files` or was skipped; `bytes_read` counts bytes of records.

    With an `error` there are no files; if the time ended before any record arrived, `reached` is `start`.
    """

    range: Range
    reached: int
    files: tuple[WrittenFile, ...] = ()
    skipped: int = 0
    bytes_read: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Offsets `[start, stop)` of a batch with a wrong checksum or compression."""

    start: int
    stop: int


class Stopped(Exception):
    """Reading a range ended early with an error. `detail` is shown to the tenant."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class TopicUnreadable(Stopped):
    """The topic is unknown, or the archive's user may not read it."""


class Sink(Protocol):
    """Destination of the records of one task, in the order of their offsets."""

    def add(self, records: Records) -> int:
        """Adds records and returns their size in bytes."""

    def skip(self, start: int, stop: int) -> None:
        """Counts offsets `[start, stop)` that cannot be read."""


def consumer_conf(bootstrap: str, security: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings of a consumer that reads only committed records, by explicit offsets and without a group."""
    return {
        **security,
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        # Required by librdkafka; the group is neither joined nor committed to.
        "group.id": CLIENT_ID,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
        # The end of a damaged batch is found by repeated fetches.
        "fetch.error.backoff.ms": 50,
        "allow.auto.create.topics": False,
        "log_level": 3,
        # They limit the memory of a task in addition to its buffers.
        "queued.max.messages.kbytes": 16_384,
        "fetch.message.max.bytes": PREFETCH_BYTES_MAX,
        # By default a full buffer stops fetching for a second, in which the task empties it and waits.
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """Current state of a topic. `ends` has (log start offset, last stable offset) of every partition with a leader."""

    id: str
    ends: Mapping[int, tuple[int, int]]


def topic_state(source: Source) -> ArchivedTopic:
    """Reads the state of the topic. Raises `Stopped` if it does not exist or the instance does not answer."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    try:
        description = _describe_topic(source)
        # Created only after a successful request: brokers count failed logins by address, and each client retries.
        consumer = Consumer(dict(source.conf))
        try:
            ends = {
                partition.id: consumer.get_watermark_offsets(
                    TopicPartition(source.topic, partition.id), timeout=limits.METADATA_TIMEOUT_S, cached=False
                )
                for partition in sorted(description.partitions, key=lambda partition: partition.id)
                if partition.leader is not None and partition.leader.id >= 0
            }
        finally:
            consumer.close()
    except KafkaException as error:
        raise _as_stopped(error) from error
    return ArchivedTopic(id=str(description.topic_id), ends=ends)


def topic_id_of(source: Source) -> str:
    """Returns the id of the topic that currently has the name. Raises `Stopped`."""
    from confluent_kafka import KafkaException

    try:
        return str(_describe_topic(source).topic_id)
    except KafkaException as error:
        raise _as_stopped(error) from error


def _describe_topic(source: Source) -> Any:
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    conf = {name: value for name, value in source.conf.items() if name.startswith(_CONNECTION_PREFIXES)}
    client = AdminClient(conf)  # it must outlive the request
    described = client.describe_topics(TopicCollection([source.topic]), request_timeout=limits.METADATA_TIMEOUT_S)
    return described[source.topic].result(limits.METADATA_TIMEOUT_S * 2)


def _as_stopped(error: Any) -> Stopped:
    from confluent_kafka import KafkaError

    failure = error.args[0]
    if failure.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        return TopicUnreadable(f"The topic cannot be read: {failure.str()}")
    return Stopped(f"The instance does not answer its client: {failure.str()}")


def archive_range(source: Source, store: address.Store, pace: TaskPace, range_: Range) -> TaskResult:
    """Archives a range. Never raises: an error of one partition must not delay the others (BAT-5)."""
    if time.time() >= pace.deadline_s:
        return TaskResult(range=range_, reached=range_.start)
    try:
        columns = columns_of(source.value_format, source.value_schema)
        with address.open_destination(store) as destination:
            files = FileSet(destination, source.topic, range_.partition, columns, source.generation)
            try:
                reached, bytes_read = copy_records(source, pace, range_, files)
                written, skipped = files.finish(), files.skipped
            finally:
                files.abandon()
    except (Stopped, address.AddressRefused) as stop:
        return TaskResult(range=range_, reached=range_.start, error=str(stop))
    except OSError as error:
        return TaskResult(range=range_, reached=range_.start, error=f"The address cannot be written to: {error}")
    except Exception as failure:
        return TaskResult(range=range_, reached=range_.start, error=f"Partition not archived: {type(failure).__name__}")
    return TaskResult(range=range_, reached=reached, files=tuple(written), skipped=skipped, bytes_read=bytes_read)


def copy_records(source: Source, pace: TaskPace, range_: Range, sink: Sink) -> tuple[int, int]:
    """Copies a range to the sink. Returns the offset after the last record, and the size of the records in bytes.

    Raises:
        Stopped: the range cannot be read further.
    """
    raw_headers = RawHeaders(dict(source.conf) | _SMALL_PREFETCH, source.topic, range_.partition, limits.STALLED_S)
    try:
        return _copy_parts(source, pace, range_, sink, raw_headers)
    finally:
        raw_headers.close()


def _copy_parts(source: Source, pace: TaskPace, range_: Range, sink: Sink, raw_headers: RawHeaders) -> tuple[int, int]:
    reached, count, size_bytes = range_.start, 0, 0
    began_s = time.time()
    for part in _read_parts(source, pace, range_):
        if part is RANGE_END:
            return range_.stop, size_bytes
        if isinstance(part, DamagedRange):
            sink.skip(part.start, part.stop)
            reached = part.stop
            continue
        messages = part[: limits.RECORDS_PER_TASK_MAX - count]
        size_bytes += _add_messages(source, messages, sink, raw_headers)
        reached, count = int(messages[-1].offset()) + 1, count + len(messages)
        if (wait_s := pace.wait_s(began_s, time.time(), size_bytes)) > limits.WAIT_S_MIN:
            if time.time() + wait_s >= pace.deadline_s:
                break
            time.sleep(wait_s)
        if count >= limits.RECORDS_PER_TASK_MAX or size_bytes >= limits.BYTES_PER_TASK_MAX:
            break
    return reached, size_bytes


def _add_messages(source: Source, messages: Iterable[Any], sink: Sink, raw_headers: RawHeaders) -> int:
    """Adds the records of messages to the sink and returns their size in bytes.

    Raises:
        Stopped: headers cannot be read and the archive skips no record.
    """
    size_bytes = 0
    readable: list[Any] = []
    headers: list[Headers] = []
    for message in messages:
        # The client crashes if headers that it could not decode are requested again.
        try:
            headers.append(headers_of(message, raw_headers))
            readable.append(message)
        except HeadersUnreadable as error:
            offset = int(message.offset())
            if not source.skips_bad_records:
                raise Stopped(f"The headers of the record at offset {offset} cannot be read: {error}.") from error
            size_bytes += _add_columns(readable, headers, sink)
            readable, headers = [], []
            sink.skip(offset, offset + 1)
    return size_bytes + _add_columns(readable, headers, sink)


def _add_columns(messages: Sequence[Any], headers: list[Headers], sink: Sink) -> int:
    if not messages:
        return 0
    records = Records(
        offsets=[message.offset() for message in messages],
        timestamps_ms=[message.timestamp()[1] for message in messages],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=headers,
    )
    return sink.add(records)


def headers_of(message: Any, raw_headers: RawHeaders) -> Headers:
    """Returns header names and values. Bytes of a name that are not UTF-8 are escaped, for example as `\\xff`.

    Raises:
        HeadersUnreadable: the record cannot be read through librdkafka.
    """
    try:
        return _HEADERS(message) or ()
    except (SystemError, UnicodeDecodeError):
        raw = raw_headers.read(int(message.offset()))
    return [(name.decode(errors="backslashreplace"), value) for name, value in raw]


def _read_parts(source: Source, pace: TaskPace, range_: Range) -> Iterator[Any]:
    """Yields lists of messages of the range, a `DamagedRange` for an unreadable batch, and finally `RANGE_END`.

    Offsets before the end may have no message, because they belong to aborted transactions. If the time limit is
    reached, `RANGE_END` is not yielded.

    Raises:
        Stopped: no record arrived in time.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(dict(source.conf) | _prefetch_settings(pace))
    try:
        consumer.assign([TopicPartition(source.topic, range_.partition, range_.start)])
        stall_deadline_s = time.time() + limits.STALLED_S
        messages_per_poll = _messages_per_poll(pace)
        while (now_s := time.time()) < pace.deadline_s:
            messages: list[Any] = []
            for message in consumer.consume(messages_per_poll, POLL_S):
                stall_deadline_s = now_s + limits.STALLED_S
                failure = message.error()
                if failure is None and (message.offset() or 0) < range_.stop:
                    messages.append(message)
                    continue
                if messages:
                    yield messages
                    messages = []
                if failure is None or failure.code() == KafkaError._PARTITION_EOF:
                    yield RANGE_END
                    return
                if _is_damage(failure):
                    damage = _damaged_range(source, consumer, range_, message.offset() or 0)
                    yield damage
                    consumer.assign([TopicPartition(source.topic, range_.partition, damage.stop)])
                    break
                if not failure.retriable():
                    raise Stopped(f"Partition {range_.partition} cannot be read: {failure.str()}")
            if messages:
                yield messages
            if now_s > stall_deadline_s:
                raise Stopped(_NO_RECORDS.format(range_.partition))
    finally:
        consumer.close()


def _messages_per_poll(pace: TaskPace) -> int:
    """Returns the maximum number of messages per poll: with a rate limit, the large records that fit into a second."""
    if pace.bytes_per_s is None:
        return MESSAGES_PER_POLL_MAX
    return max(1, min(MESSAGES_PER_POLL_MAX, pace.bytes_per_s // LARGE_RECORD_BYTES))


def _is_damage(failure: Any) -> bool:
    from confluent_kafka import KafkaError

    return failure is not None and failure.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION)


def _damaged_range(source: Source, consumer: Any, range_: Range, base_offset: int) -> DamagedRange:
    """Returns the extent of a damaged batch; the client does not advance beyond it by itself. Raises `Stopped`."""
    from confluent_kafka import TopicPartition

    if not source.skips_bad_records:
        raise Stopped(f"The batch at offset {base_offset} is damaged, and the archive skips none.")

    def is_damaged_from(offset: int) -> bool:
        consumer.assign([TopicPartition(source.topic, range_.partition, offset)])
        message = consumer.poll(limits.STALLED_S)
        if message is None:
            raise Stopped(_NO_RECORDS.format(range_.partition))
        return _is_damage(message.error()) and message.offset() == base_offset

    return DamagedRange(start=base_offset, stop=find_damage_end(base_offset, range_.stop, is_damaged_from))


def _prefetch_settings(pace: TaskPace) -> dict[str, int]:
    """Returns settings that limit prefetching to a second of the rate; it counts against the instance's bandwidth."""
    if pace.bytes_per_s is None:
        return {}
    prefetch_bytes = max(PREFETCH_BYTES_MIN, min(PREFETCH_BYTES_MAX, pace.bytes_per_s))
    return {"queued.max.messages.kbytes": prefetch_bytes // 1_024, "fetch.message.max.bytes": prefetch_bytes}
