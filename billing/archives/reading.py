"""What a task of Spark does: reads a range of one partition as a client of the instance, and writes its files.

No setting of Django is read here: Spark's workers do not have them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from billing.archives import address, limits
from billing.archives.files import FileSet, Written, hour_of
from billing.archives.plan import Range

CLIENT_ID: Final = "penstock-archive"
CONSUMED_AT_ONCE: Final = 5_000
POLL_S: Final = 0.2
END: Final = "end"
DAMAGED: Final = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How a tenant's topic is read: `conf` is what a client of the instance's own address is set to."""

    topic: str
    conf: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What became of a range: all of `[start, reached)` is in `files`, or was skipped. With an `error` nothing is."""

    range: Range
    reached: int
    files: tuple[Written, ...] = ()
    skipped: int = 0
    error: str = ""


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
        "allow.auto.create.topics": False,
        "log_level": 3,
        # Memory of a task beside its buffers.
        "queued.max.messages.kbytes": 16_384,
        "fetch.message.max.bytes": 4_194_304,
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


def archive_range(source: Source, store: address.Store, wanted: Range, *, skips_bad: bool) -> TaskResult:
    """Never raises: what is the matter with one partition keeps no other waiting (BAT-5)."""
    try:
        with address.open_place(store) as place:
            files = FileSet(place, source.topic, wanted.partition)
            try:
                reached, skipped = _copy(source, wanted, files, skips_bad=skips_bad)
                written = files.finish()
            finally:
                files.abandon()
    except (Stopped, address.AddressRefused) as stop:
        return TaskResult(range=wanted, reached=wanted.start, error=str(stop))
    except OSError as trouble:
        return TaskResult(range=wanted, reached=wanted.start, error=f"The address cannot be written to: {trouble}")
    except Exception as failure:
        return TaskResult(range=wanted, reached=wanted.start, error=f"Partition not archived: {type(failure).__name__}")
    return TaskResult(range=wanted, reached=reached, files=tuple(written), skipped=skipped)


def _copy(source: Source, wanted: Range, files: FileSet, *, skips_bad: bool) -> tuple[int, int]:
    """The offset that was reached, and how many records were skipped."""
    reached, skipped, records, size = wanted.start, 0, 0, 0
    for message in _messages(source, wanted):
        if message is END:
            return wanted.stop, skipped
        if message is DAMAGED:
            skipped += _skip("A batch is damaged", skips_bad)
            continue
        offset, timestamp_ms = int(message.offset()), int(message.timestamp()[1])
        hour = hour_of(timestamp_ms)
        if hour is None:
            skipped += _skip(f"The timestamp of the record at offset {offset} names no hour", skips_bad)
        elif files.has_room_for(hour):
            size += files.add(hour, offset, timestamp_ms, message.key(), message.value(), message.headers() or [])
        else:
            break
        reached, records = offset + 1, records + 1
        if records >= limits.RECORDS_PER_TASK_MAX or size >= limits.BYTES_PER_TASK_MAX:
            break
    return reached, skipped


def _messages(source: Source, wanted: Range) -> Iterator[Any]:
    """Records below the range's end, `DAMAGED` for a batch that cannot be read, and `END` when there are no more: what
    lies before the end may be of aborted transactions. Without `END` the time was over.

    Raises:
        Stopped: nothing came.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(dict(source.conf))
    try:
        consumer.assign([TopicPartition(source.topic, wanted.partition, wanted.start)])
        ends_s = time.monotonic() + limits.TASK_S
        stalls_s = time.monotonic() + limits.STALLED_S
        while (now_s := time.monotonic()) < ends_s:
            for message in consumer.consume(CONSUMED_AT_ONCE, POLL_S):
                stalls_s = now_s + limits.STALLED_S
                failure = message.error()
                if failure is None and (message.offset() or 0) < wanted.stop:
                    yield message
                elif failure is None or failure.code() == KafkaError._PARTITION_EOF:
                    yield END
                    return
                elif failure.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION):
                    yield DAMAGED
                elif not failure.retriable():
                    raise Stopped(f"Partition {wanted.partition} cannot be read: {failure.str()}")
            if now_s > stalls_s:
                raise Stopped(f"Nothing came of partition {wanted.partition}: the instance is throttled or silent.")
    finally:
        consumer.close()


def _skip(what: str, skips_bad: bool) -> int:
    if not skips_bad:
        raise Stopped(f"{what}, and the archive skips none.")
    return 1
