"""Kafka client of the pipeline: available offsets of usage records, and ranges of them as Arrow columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from billing.pipeline.decoding import batch_of
from brokers.contract.usage import USAGE_TOPIC

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

# Records are decoded together up to these limits. Records of version 2 have up to a thousand counters.
RECORDS_PER_BATCH: Final = 20_000
BYTES_PER_BATCH: Final = 2 * 1024 * 1024
# Limits of the number of records that the client returns at once. A read begins with the minimum, because the size of
# records is not known yet.
RECORDS_AT_ONCE_MIN: Final = 16
RECORDS_AT_ONCE_MAX: Final = 2_000
READ_TIMEOUT_S: Final = 60.0
METADATA_TIMEOUT_S: Final = 10.0
# Maximum time for which the client collects messages before it returns them.
CONSUME_TIMEOUT_S: Final = 0.5
QUEUE_BACKOFF_MS: Final = 10


class UsageReadStalled(Exception):
    """The brokers did not deliver a planned range in time; the run is repeated from the same offsets."""


class UsageConsumer:
    """Consumer without a group that reads by explicit offsets. As a context manager it closes at the end."""

    def __init__(self, bootstrap: str, login: Mapping[str, str]) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(consumer_conf(bootstrap, login))
        # Set by another thread, to end a `read` whose records are no longer needed.
        self.is_ending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def available(self) -> dict[int, tuple[int, int]]:
        """Returns (log start offset, high watermark) of each usage partition that has a leader.

        A topic that does not exist yet has none.
        """
        from confluent_kafka import TopicPartition

        topics = self._consumer.list_topics(USAGE_TOPIC, timeout=METADATA_TIMEOUT_S).topics
        partitions = topics[USAGE_TOPIC].partitions if USAGE_TOPIC in topics else {}
        return {
            index: self._consumer.get_watermark_offsets(
                TopicPartition(USAGE_TOPIC, index), timeout=METADATA_TIMEOUT_S, cached=False
            )
            for index, partition in partitions.items()
            if partition.leader >= 0
        }

    def read(self, partition: int, start: int, stop: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yields the records `[start, stop)` as rows of `schema.EVENT`, all rows of a record in one batch.

        Reading ends at `stop`, or with the record or batch that reaches `bytes_max`. A batch counts with the bytes of
        its records or of its rows, whichever are more. The next range begins after the highest offset.

        Raises:
            UsageReadStalled: no progress for `READ_TIMEOUT_S`.
        """
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(USAGE_TOPIC, partition, start)])
        position, deadline = start, time.monotonic() + READ_TIMEOUT_S
        offsets: list[int] = []
        raws: list[bytes | None] = []
        size, at_once = 0, RECORDS_AT_ONCE_MIN
        while position < stop and bytes_max > 0 and not self.is_ending:
            # Never more than the remaining records: the client would wait for the rest.
            messages = self._consumer.consume(min(at_once, stop - position), CONSUME_TIMEOUT_S)
            if messages:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise UsageReadStalled(f"{USAGE_TOPIC}-{partition} stalled at offset {position}")
            new_offsets, new_raws = _contents(messages, partition, stop)
            if not new_raws:
                continue
            new_raws, new_size = _cut(new_raws, bytes_max - size)
            raws += new_raws
            offsets += new_offsets[: len(new_raws)]
            size += new_size
            position = offsets[-1] + 1
            at_once = _at_once(len(new_raws), new_size)
            if position < stop and size < min(bytes_max, BYTES_PER_BATCH) and len(raws) < RECORDS_PER_BATCH:
                continue
            batch = batch_of(partition, offsets, raws)
            bytes_max -= max(size, batch.nbytes)
            offsets, raws, size = [], [], 0
            yield batch


def _at_once(records: int, size: int) -> int:
    """Returns how many records like these the client may return at once."""
    return max(RECORDS_AT_ONCE_MIN, min(RECORDS_AT_ONCE_MAX, BYTES_PER_BATCH * records // max(1, size)))


def _contents(messages: list[Message], partition: int, stop: int) -> tuple[list[int], list[bytes | None]]:
    """Returns offsets and values of the partition's messages below `stop`. Raises `KafkaException` for a permanent
    error.
    """
    from confluent_kafka import KafkaException

    for failure in [failure for message in messages if (failure := message.error()) is not None]:
        if not failure.retriable():
            raise KafkaException(failure)
    # The client may still return messages of the previous range.
    read = [message for message in messages if message.error() is None and message.partition() == partition]
    offsets = [offset for message in read if (offset := message.offset()) is not None and offset < stop]
    return offsets, [message.value() for message in read[: len(offsets)]]


def _cut(raws: list[bytes | None], bytes_max: int) -> tuple[list[bytes | None], int]:
    """Returns the values up to and including the one that reaches `bytes_max`, and their size in bytes."""
    sizes = [len(raw or b"") for raw in raws]
    size = sum(sizes)
    if size <= bytes_max:
        return raws, size
    for count, size in enumerate(accumulate(sizes), 1):
        if size >= bytes_max:
            return raws[:count], size
    return raws, size


def _login_conf(login: Mapping[str, str]) -> dict[str, Any]:
    certificate_file = login.get("certificate_file")
    if certificate_file:
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": login["ca_file"],
            "ssl.certificate.location": certificate_file,
            "ssl.key.location": certificate_file,
            # A certificate names a process, not a host; only brokers have server certificates (decision 106).
            "ssl.endpoint.identification.algorithm": "none",
        }
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": login["username"],
        "sasl.password": login["password"],
    }


def consumer_conf(bootstrap: str, login: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of a consumer that reads by explicit offsets and neither commits nor joins a group."""
    return {
        **_login_conf(login),
        "bootstrap.servers": bootstrap,
        "group.id": "penstock-usage",
        "client.id": "penstock-usage-pipeline",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "allow.auto.create.topics": False,
        # By default a full buffer stops fetching for a second.
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
        "log_level": 3,
    }
