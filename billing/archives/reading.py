"""What a task of Spark does: reads a range of one partition as a client of the instance, and writes its files.

No setting of Django is read here: Spark's workers do not have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from billing.archives import address, limits
from billing.archives.damage import end_of_damage
from billing.archives.files import FileSet, Written, hour_of
from billing.archives.plan import Pace, Range
from billing.archives.values import columns_of

CLIENT_ID: Final = "penstock-archive"
CONSUMED_AT_ONCE: Final = 5_000
POLL_S: Final = 0.2
AHEAD_BYTES_MIN: Final = 65_536
AHEAD_BYTES_MAX: Final = 4_194_304
END: Final = "end"
_SILENT: Final = "Nothing came of partition {}: the instance is throttled or silent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How a tenant's topic is read: `conf` is what a client of the instance's own address is set to, `value_format` and
    `value_schema` say which columns are made of values.
    """

    topic: str
    conf: Mapping[str, Any] = field(repr=False)
    value_format: str = ""
    value_schema: Any = None
    skips_bad: bool = True


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


def available_offsets(source: Source) -> dict[int, tuple[int, int]]:
    """(log start offset, last stable offset) of every partition that has a leader.

    Raises:
        Stopped: there is no such topic, or nobody answers as who was named.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(dict(source.conf))
    try:
        found = consumer.list_topics(source.topic, timeout=limits.METADATA_TIMEOUT_S).topics[source.topic]
        if found.error is not None:
            raise Stopped(f"The topic cannot be read: {found.error.str()}")
        return {
            index: consumer.get_watermark_offsets(
                TopicPartition(source.topic, index), timeout=limits.METADATA_TIMEOUT_S, cached=False
            )
            for index, partition in sorted(found.partitions.items())
            if partition.leader >= 0
        }
    except KafkaException as trouble:
        raise Stopped(f"The instance does not answer its client: {trouble.args[0].str()}") from trouble
    finally:
        consumer.close()


def archive_range(source: Source, store: address.Store, pace: Pace, wanted: Range) -> TaskResult:
    """Never raises: what is the matter with one partition keeps no other waiting (BAT-5)."""
    if time.time() >= pace.ends_s:
        return TaskResult(range=wanted, reached=wanted.start)
    try:
        columns = columns_of(source.value_format, source.value_schema)
        with address.open_place(store) as place:
            files = FileSet(place, source.topic, wanted.partition, columns)
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
    reached, skipped, records, size = wanted.start, 0, 0, 0
    began_s = time.time()
    for message in _messages(source, pace, wanted):
        if message is END:
            return wanted.stop, skipped, size
        if isinstance(message, Damaged):
            reached, skipped = message.stop, skipped + message.stop - message.start
            continue
        offset, timestamp_ms = int(message.offset()), int(message.timestamp()[1])
        hour = hour_of(timestamp_ms)
        if hour is None:
            if not source.skips_bad:
                raise Stopped(f"The timestamp of the record at offset {offset} names no hour.")
            skipped += 1
        elif files.has_room_for(hour):
            size += files.add(hour, offset, timestamp_ms, message.key(), message.value(), message.headers() or [])
        else:
            break
        reached, records = offset + 1, records + 1
        if (wait_s := pace.wait_s(began_s, time.time(), size)) > limits.WAIT_S_MIN:
            if time.time() + wait_s >= pace.ends_s:
                break
            time.sleep(wait_s)
        if records >= limits.RECORDS_PER_TASK_MAX or size >= limits.BYTES_PER_TASK_MAX:
            break
    return reached, skipped, size


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
